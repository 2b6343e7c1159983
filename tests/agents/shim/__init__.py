"""NVIDIA's libraries without a GPU, compiled from the C beside this file, so that the real pynvml runs against them."""

import os
import pathlib
import shutil
import subprocess

FOLDER = pathlib.Path(__file__).parent
UUIDS = ("GPU-00000000-0000-0000-0000-000000000000", "GPU-11111111-1111-1111-1111-111111111111")
HEALTHY = {
    "handle": "ok",
    "serial": "1652",
    "name": "NVIDIA H100 80GB HBM3",
    "busy": 1,
    "ecc": 1,
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
    "sram": 0,
    "rows_pending": 0,
    "rows_none": 0,
    "repair": 0,
    "clocks": 4,
    "violation.1": 0,
    "pcie_width": 16,
    "pcie_max_width": 16,
    "pcie_gen": 5,
    "pcie_max_gen": 5,
    "margin": 40,
    "temperature": 45,
    "slowdown": 90,
    "power": 412000,
    "power_limit": 700000,
    "power_default": 700000,
    "mig": 0,
    "process": 0,
    "nvlinks": 4,
    "fabric": 3,
    "field230.0": 0,
    "field94.0": 0,
}


def build(folder):
    """Compiles the libraries into a folder; returns it. Needs a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    for source, library, more in (
        ("nvml.c", "libnvidia-ml.so.1", ()),
        ("cuda.c", "libcuda.so.1", ()),
        ("cublas.c", "libcublas.so.12", (str(folder / "libcuda.so.1"), "-Wl,-rpath,$ORIGIN")),
    ):
        command = (compiler, "-shared", "-fPIC", "-O1", "-w", f"-Wl,-soname,{library}", "-o", str(folder / library))
        subprocess.run((*command, str(FOLDER / source), *more), check=True)
    return folder


class Driver:
    """Two GPUs whose state is in the test's hand."""

    def __init__(self, libraries, folder):
        self.libraries, self.file = libraries, folder / "nvml-shim"
        self.state = {"driver": "580.65.06", "count": 2}
        for index, uuid in enumerate(UUIDS):
            self.state |= {f"{index}.uuid": uuid, f"{index}.pci": f"00000000:{4 + index}E:00.0"}
            self.state |= {f"{index}.{key}": value for key, value in HEALTHY.items()}
        self.write()

    def set(self, **state):
        """``gpu0__ecc=1`` is the line ``0.ecc 1``; None removes a line."""
        for key, value in state.items():
            name = key.removeprefix("gpu").replace("__", ".")
            if value is None:
                self.state.pop(name)
            else:
                self.state[name] = value
        self.write()

    def write(self):
        draft = self.file.with_suffix(".tmp")
        draft.write_text("".join(f"{key} {value}\n" for key, value in self.state.items()))
        draft.replace(self.file)

    @property
    def environ(self):
        """What a process needs to see these GPUs."""
        path = os.pathsep.join(filter(None, (str(self.libraries), os.environ.get("LD_LIBRARY_PATH"))))
        return {"LD_LIBRARY_PATH": path, "NVML_SHIM": str(self.file)}
