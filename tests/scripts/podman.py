"""Settings of podman for tests: containers and images in a folder of the test, so that nothing is left on the host."""

import os

# runc with cgroupfs works where root of a container starts containers itself, and crun does not.
ENGINE = '[engine]\ncgroup_manager="cgroupfs"\nevents_logger="file"\nruntime="runc"\n'


def keep_in(folder):
    """Has every podman that this process starts keep what it makes in a folder."""
    engine, storage = folder / "containers.conf", folder / "storage.conf"
    engine.write_text(ENGINE)
    storage.write_text(f'[storage]\ndriver="vfs"\ngraphroot="{folder}/graph"\nrunroot="{folder}/run"\n')
    os.environ["CONTAINERS_CONF"] = str(engine)
    os.environ["CONTAINERS_STORAGE_CONF"] = str(storage)
