"""Run a notebook from its first cell to its last, and measure the time and the memory."""

import os
import re
import time
from pathlib import Path

import psutil
from nbclient import NotebookClient
from nbformat import NotebookNode

from satcourse.widgets import still

WIDGET = "application/vnd.jupyter.widget-view+json"
NO_WIDGET = "> **Run > Run All Cells**, and here is something to move."


def execute(notebook: NotebookNode, folder: Path) -> tuple[float, float]:
    """Run it in place, in a folder; return the seconds, and the kernel's largest memory in GB. A cell that fails ends it."""
    began = time.monotonic()
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources, record_timing=False)
    with client.setup_kernel(env=os.environ | {still.ENVIRONMENT: "1"}):
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
        memory = peak_memory(client.km.provisioner.pid)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = merged([output for output in cell.outputs if output.get("name") != "stderr"])
            for output in cell.outputs:
                if WIDGET in output.get("data", {}):  # its model lives in the kernel: a stored page would show an error
                    output.data, output.metadata = NotebookNode({"text/markdown": NO_WIDGET}), NotebookNode()
                output.get("metadata", {}).pop("needs_background", None)  # figures are readable on light and dark pages
    return time.monotonic() - began, memory


def merged(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """The outputs, with what was printed in a row as one: the kernel sends it in pieces, at chance moments."""
    result: list[NotebookNode] = []
    for output in outputs:
        if result and output.output_type == "stream" and output.name == result[-1].get("name"):
            result[-1].text += output.text
        else:
            result.append(output)
    return result


def peak_memory(pid: int) -> float:
    """The largest memory that a process has held, in GB; where the system does not keep it (macOS), what it holds now."""
    status = Path(f"/proc/{pid}/status")
    kilobytes = re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="utf-8")) if status.is_file() else None
    return int(kilobytes[1]) * 1024 / 1e9 if kilobytes else psutil.Process(pid).memory_info().rss / 1e9
