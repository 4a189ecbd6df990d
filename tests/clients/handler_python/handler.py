"""A handler of services: it bridges ports. `handler.py SOCKET TYPE`, with PROTO_PATH as the folder of `holdfast/handler.proto`.

THINK has it wait so many seconds before it answers, and READ has it read the status of the port first. ACTIONS are the names
of actions that it carries out: it counts how often. LASTING has it take modification calls, and put out what is to last.
"""

import json
import os
import queue
import sys
import threading
import time

import grpc

sys.path.insert(0, os.environ["PROTO_PATH"])
messages, services = grpc.protos_and_services("holdfast/handler.proto")

THINK = float(os.environ.get("THINK", "0"))
READ = "READ" in os.environ
# Leaf that a call puts out to last, and its value.
LASTING = {
    messages.PHASE_PRE_MODIFICATION: ("/interfaces/interface[name=eth2]/description", "before"),
    messages.PHASE_POST_MODIFICATION: ("/interfaces/interface[name=eth1]/description", "after"),
    messages.PHASE_DELETE: ("/interfaces/interface[name=eth1]/mtu", 1300),
} if "LASTING" in os.environ else {}


class Handler:
    """One attached handler: what it says waits in `outbox`, and gRPC takes it from there."""

    def __init__(self, socket, service):
        # The path of a socket, which gRPC would send otherwise, is no name of a host.
        options = [("grpc.default_authority", "localhost")]
        self.stub = services.HandlerStub(grpc.insecure_channel(f"unix:{socket}", options))
        self.service = service
        self.outbox = queue.SimpleQueue()
        self.results = {}
        self.count = 0

    def run(self):
        phases = (messages.PHASE_CREATE, messages.PHASE_DELETE)
        wanted = os.environ.get("PHASES", "create").split(",")
        calls = [
            messages.ServedCalls(component="*", state="*", phase=phase)
            for phase, name in zip(phases, ("create", "delete"))
            if name in wanted
        ]
        actions = os.environ.get("ACTIONS", "").split()
        served = messages.ServedType(
            type=self.service, calls=calls, actions=actions, modification=bool(LASTING)
        )
        self.say(register=messages.Register(name=f"{self.service}-handler", types=[served]))
        for message in self.stub.Attach(iter(self.outbox.get, None)):
            kind = message.WhichOneof("message")
            print(kind, str(getattr(message, kind)).replace("\n", " "), flush=True)
            if kind == "ping":
                self.say(pong=messages.Pong())
            elif kind == "services_commit":
                # Work takes time, and pings are answered meanwhile.
                threading.Thread(target=self.work, args=(message.services_commit,), daemon=True).start()
            elif kind == "action":
                self.act(message.action)
            elif kind == "query_action":
                self.tell(message.query_action.id)
            elif kind == "action_recorded":
                del self.results[message.action_recorded.id]

    def say(self, **message):
        self.outbox.put(messages.FromHandler(**message))

    def act(self, action):
        self.say(action_accepted=messages.ActionAccepted(id=action.id))
        self.count += 1
        result = json.dumps({"number": self.count, **json.loads(action.params)})
        self.results[action.id] = result
        self.say(action_result=messages.ActionResult(id=action.id, json=result))

    def tell(self, number):
        status = messages.ActionStatus(id=number, progress=messages.ACTION_PROGRESS_NEVER_SEEN)
        if number in self.results:
            status.progress = messages.ACTION_PROGRESS_ENDED
            status.json = self.results[number]
        self.say(action_status=status)

    def work(self, commit):
        time.sleep(THINK)
        served = []
        for call in commit.calls:
            params = json.loads(call.params)
            if call.phase in LASTING:
                self.edit(commit, call, *LASTING[call.phase])
            if call.phase in (messages.PHASE_PRE_MODIFICATION, messages.PHASE_POST_MODIFICATION):
                served.append(messages.Served(call=call.call))
                continue
            if call.phase == messages.PHASE_DELETE:
                keep = os.environ.get("KEEP", "")
                if keep and os.path.exists(keep):
                    served.append(messages.Served(call=call.call, keep=f"{keep} is there"))
                else:
                    served.append(messages.Served(call=call.call))
                continue
            if params["bridge"] == "refused":
                reason = f"no bridge is called {params['bridge']}"
                self.say(error=messages.Error(tid=commit.tid, reason=reason))
                return
            if READ:
                self.read(commit, call, f"/interfaces/interface[name={params['port']}]/state/oper-status")
            bridge, port = (
                f"/interfaces/interface[name={params[name]}]" for name in ("bridge", "port")
            )
            self.edit(commit, call, f"{bridge}/type", "bridge")
            self.edit(commit, call, f"{port}/enabled", True)
            self.edit(commit, call, f"{port}/master", params["bridge"])
            opaque = json.dumps({"mtu": 1400 + len(params["bridge"])})
            served.append(messages.Served(call=call.call, opaque=opaque))
        self.say(done=messages.Done(tid=commit.tid, served=served))

    def edit(self, commit, call, path, value):
        edit = messages.Edit(tid=commit.tid, call=call.call, path=path, json=json.dumps(value))
        self.say(edit=edit)

    def read(self, commit, call, path):
        request = messages.ReadRequest(
            tid=commit.tid, call=call.call, plane=messages.PLANE_STATE, path=path
        )
        leaves = {reply.path: json.loads(reply.json) for reply in self.stub.Read(request)}
        print("read", leaves, flush=True)


if __name__ == "__main__":
    try:
        Handler(*sys.argv[1:]).run()
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
