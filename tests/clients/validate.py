"""Runs oc_config_validate with the tests of this folder. The tool ends well whatever it finds; this does not."""

import json
import os
import subprocess
import sys
import tempfile


def main():
    with tempfile.NamedTemporaryFile(suffix=".json") as results:
        command = [sys.executable, "-m", "oc_config_validate"]
        command += ["--target", f"{os.environ['TARGET_HOST']}:{os.environ['TARGET_PORT']}"]
        command += ["--username", os.environ["TARGET_USER"], "--password", os.environ["TARGET_PASSWORD"]]
        command += ["--root_ca_cert", os.environ["TARGET_CA"]]
        command += ["--tests_file", "oc_config_validate.yaml", "--results_file", results.name]
        command += ["--gnmi_set_cooldown_secs", "1", "--stop_on_error", "--log_gnmi"]
        subprocess.run(command, check=True)
        run = json.load(results)
    if run["tests_fail"] or not run["tests_pass"]:
        raise SystemExit(json.dumps(run, indent=2))
    print(f"{run['tests_pass']} passed")


main()
