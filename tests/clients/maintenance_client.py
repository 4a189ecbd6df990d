"""A consumer of maintenance: `maintenance_client.py ACTION`, with PROTO_PATH as the folder of `holdfast/maintenance.proto`.

It follows the sessions that affect it, and agrees to each with ACTION for all of its objects. With `own-action` it sets what
MOVES says, a list of gNMI paths with their values in JSON, and then says that its objects are done. It prints a line for each
thing that it is told, and ends when a session is over.
"""

import json
import os
import sys

import grpc
from pygnmi.client import gNMIclient

sys.path.insert(0, os.environ["PROTO_PATH"])
messages, services = grpc.protos_and_services("holdfast/maintenance.proto")

ACTION = sys.argv[1]
LOGIN = [("username", os.environ["TARGET_USER"]), ("password", os.environ["TARGET_PASSWORD"])]


def connect():
    """The service of the agent, over TLS."""
    with open(os.environ["TARGET_CA"], "rb") as file:
        trusted = grpc.ssl_channel_credentials(file.read())
    target = f"{os.environ['TARGET_HOST']}:{os.environ['TARGET_PORT']}"
    return services.MaintenanceStub(grpc.secure_channel(target, trusted))


def name(state):
    """A state in lower case, without its prefix."""
    return messages.State.Name(state).removeprefix("STATE_").lower()


def say(*words):
    print(*words, flush=True)


class Consumer:
    def __init__(self, stub):
        self.stub = stub

    def run(self):
        for message in self.stub.Watch(messages.WatchRequest(), metadata=LOGIN):
            if message.HasField("snapshot"):
                say("snapshot", len(message.snapshot.sessions))
                for session in message.snapshot.sessions:
                    self.take(session, session.consumers[0].state)
                continue
            event = message.event
            if event.change == messages.Event.CHANGE_ACTION_DONE:
                say("done", event.object)
            elif event.change == messages.Event.CHANGE_STATE:
                say("state", name(event.state), event.told_as or "-")
                self.take(event.session, event.state)
                if event.state >= messages.STATE_OVER:
                    return

    def take(self, session, state):
        """Does what is to be done in a state: replies to an announcement, and moves while the session drains."""
        if state == messages.STATE_ANNOUNCED:
            action = messages.Action.Value("ACTION_" + ACTION.replace("-", "_").upper())
            self.reply(session, answer=messages.ANSWER_ACK, action=action)
            say("replied", ACTION)
        elif state == messages.STATE_DRAINING and ACTION == "own-action":
            move()
            objects = [it.path for own in session.consumers for it in own.objects]
            self.reply(session, done=objects)
            say("moved", len(objects))

    def reply(self, session, **content):
        request = messages.ReplyRequest(id=session.id, **content)
        self.stub.Reply(request, metadata=LOGIN)


def move():
    """Moves what this consumer has, as a client of gNMI with the right to write."""
    with gNMIclient(
        target=(os.environ["TARGET_HOST"], os.environ["TARGET_PORT"]),
        username=os.environ["MOVER_USER"],
        password=os.environ["MOVER_PASSWORD"],
        path_cert=os.environ["TARGET_CA"],
        gnmi_timeout=30,
    ) as client:
        moves = [(path, value) for path, value in json.loads(os.environ["MOVES"])]
        client.set(update=moves, encoding="json_ietf")


Consumer(connect()).run()
