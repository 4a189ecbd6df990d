"""What a Python user of pygnmi does: capabilities, get, set, subscribe. Ends with an error when a step goes wrong."""

import os

from pygnmi.client import gNMIclient

ETH0 = "/interfaces/interface[name=eth0]"


def main():
    target = (os.environ["TARGET_HOST"], os.environ["TARGET_PORT"])
    with gNMIclient(
        target=target,
        username=os.environ["TARGET_USER"],
        password=os.environ["TARGET_PASSWORD"],
        path_cert=os.environ["TARGET_CA"],
        gnmi_timeout=30,
    ) as client:
        told = client.capabilities()
        check("version", told["gnmi_version"] == "0.10.0", told["gnmi_version"])
        models = {model["name"] for model in told["supported_models"]}
        check("models", "openconfig-interfaces" in models, models)

        answer = client.set(
            update=[(f"{ETH0}/config", {"name": "eth0", "description": "by pygnmi", "enabled": True})],
            encoding="json_ietf",
        )
        check("set", answer["response"][0]["op"] == "UPDATE", answer)

        description = value(client.get(path=[f"{ETH0}/config/description"], encoding="json_ietf"))
        check("get", description == "by pygnmi", description)
        for datatype in ("all", "config", "state", "operational"):
            value(client.get(path=["/interfaces"], datatype=datatype, encoding="json_ietf"))

        subscription = {
            "subscription": [{"path": f"{ETH0}/state/oper-status", "mode": "on_change"}],
            "mode": "stream",
            "encoding": "json_ietf",
        }
        told = client.subscribe2(subscribe=subscription)
        first = told.get_update(timeout=15)
        check("subscribe", "UP" in str(first), first)
        client.set(update=[(f"{ETH0}/config", {"enabled": False})], encoding="json_ietf")
        change = told.get_update(timeout=15)
        check("change", "DOWN" in str(change), change)
        told.close()


def value(answer):
    return answer["notification"][0]["update"][0]["val"]


def check(what, holds, seen):
    if not holds:
        raise SystemExit(f"{what}: {seen}")
    print(f"{what}: ok")


main()
