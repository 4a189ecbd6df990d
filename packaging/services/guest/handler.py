#!/usr/bin/env python3
"""A handler of the services `guest`: a guest is a network namespace with one end of a cable to the box.

`handler.py SOCKET TYPE`. HOLDFAST_PROTO is the folder of `holdfast/handler.proto`, STATE_DIRECTORY that of the journal, in
which each action has a file: empty once it has begun, with its end afterwards. So a handler that was killed can tell the
agent what it has done. SECONDS has it take so long for an action, to try losses out.
"""

import json
import os
import pathlib
import queue
import subprocess
import sys
import threading
import time

import grpc

PROTOS = os.environ.get("HOLDFAST_PROTO", "/usr/share/holdfast/proto")
if not pathlib.Path(PROTOS, "holdfast/handler.proto").exists():
    sys.exit(f"there is no holdfast/handler.proto in {PROTOS}: copy proto/protos of the source tree there, or set HOLDFAST_PROTO")
sys.path.insert(0, PROTOS)
messages, services = grpc.protos_and_services("holdfast/handler.proto")


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def create(name, port):
    """Makes the guest, and says where it is."""
    ip("netns", "add", name)
    ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
    ip("-n", name, "link", "set", "eth0", "up")
    ip("link", "set", port, "up")
    return {"namespace": f"/run/netns/{name}"}


def destroy(name):
    """Removes the guest. Its end of the cable goes with it, and so does the port."""
    ip("netns", "delete", name)


ACTIONS = {"create": create, "destroy": destroy}


class Journal:
    """What is known of each action, in a file of its own."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.running = set()
        # Actions that ended under an earlier stream, unless the agent asks about them before it is done with its questions.
        self.unasked = {int(path.name) for path in self.folder.glob("[0-9]*")}

    def begin(self, number):
        """Notes that an action begins. Another one must not have this number."""
        self.running.add(number)
        self.write(self.folder / str(number), {}, "x")
        self.sync()

    def end(self, number, end):
        """Notes the end of an action. A file is there as a whole, or as it was."""
        draft = self.folder / "draft"
        self.write(draft, end, "w")
        draft.rename(self.folder / str(number))
        self.sync()
        self.running.discard(number)

    def forget(self, number):
        """Forgets an action that the agent never asks about again. One that runs is forgotten by the next handler."""
        if number not in self.running:
            (self.folder / str(number)).unlink(missing_ok=True)

    def write(self, path, content, mode):
        with open(path, mode, encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())

    def sync(self):
        """Has the names of the files outlast a loss of power."""
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def status(self, number):
        """What the agent is told that asks for an action."""
        path = self.folder / str(number)
        self.unasked.discard(number)
        if number in self.running:
            return {"progress": messages.ACTION_PROGRESS_RUNNING}
        if not path.exists():
            return {"progress": messages.ACTION_PROGRESS_NEVER_SEEN}
        end = json.loads(path.read_text(encoding="utf-8") or "{}")
        if end:
            return {"progress": messages.ACTION_PROGRESS_ENDED, **end}
        # It was killed meanwhile. An operator looks, and says what came of it.
        return {"progress": messages.ACTION_PROGRESS_UNKNOWN}


class Handler:
    def __init__(self, socket, service):
        options = [("grpc.default_authority", "localhost")]
        self.stub = services.HandlerStub(grpc.insecure_channel(f"unix:{socket}", options))
        self.service = service
        self.outbox = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.journal = Journal(os.environ.get("STATE_DIRECTORY", "."))

    def say(self, **message):
        self.outbox.put(messages.FromHandler(**message))

    def run(self):
        served = messages.ServedType(type=self.service, actions=list(ACTIONS))
        self.say(register=messages.Register(name=f"{self.service}-handler", types=[served]))
        for message in self.stub.Attach(iter(self.outbox.get, None)):
            kind = message.WhichOneof("message")
            print(kind, str(getattr(message, kind)).replace("\n", " "), flush=True)
            if kind == "ping":
                self.say(pong=messages.Pong())
            elif kind == "action":
                self.journal.begin(message.action.id)
                self.say(action_accepted=messages.ActionAccepted(id=message.action.id))
                threading.Thread(target=self.act, args=(message.action,), daemon=True).start()
            elif kind == "query_action":
                number = message.query_action.id
                status = messages.ActionStatus(id=number, **self.journal.status(number))
                self.say(action_status=status)
            elif kind == "action_recorded":
                self.journal.forget(message.action_recorded.id)
            elif kind == "synced":
                for number in self.journal.unasked:
                    self.journal.forget(number)

    def act(self, action):
        time.sleep(float(os.environ.get("SECONDS", "0")))
        with self.lock:
            try:
                result = ACTIONS[action.action](**json.loads(action.params))
                end = {"json": json.dumps(result)}
            except subprocess.CalledProcessError as error:
                end = {"error": f"{' '.join(error.cmd)}: {error.stderr.strip()}"}
            self.journal.end(action.id, end)
        self.say(action_result=messages.ActionResult(id=action.id, **end))


if __name__ == "__main__":
    try:
        Handler(*sys.argv[1:]).run()
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
