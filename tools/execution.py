"""Run a notebook from its first cell to its last, and measure the time and the memory."""

import os
import re
import time
from pathlib import Path

import psutil
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from satcourse.widgets import still

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"
NO_WIDGET = "> **Run > Run All Cells**, and here is something to move."
SECONDS = 600  # a cell that takes longer hangs


def execute(notebook: NotebookNode) -> tuple[float, float]:
    """Run it in place, in its own folder.

    Returns:
        seconds, and the kernel's largest memory in GB.

    Raises:
        CellExecutionError: a cell fails.
    """
    began = time.monotonic()
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=resources)
    with client.setup_kernel(env=os.environ | {still.ENVIRONMENT: "1"}):
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
            for output in cell.get("outputs", ()):
                if output.output_type == "error":  # an exercise's check shows one without stopping the run
                    raise CellExecutionError(output.evalue, output.ename, output.evalue)
        peak = peak_memory(client.km.provisioner.pid)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
        if cell.cell_type == "code":  # progress bars and warnings are of that one run
            cell.outputs = merged([output for output in cell.outputs if output.get("name") != "stderr"])
            for output in cell.outputs:
                if WIDGET in output.get(
                    "data", {}
                ):  # its model lives in the kernel: a page that is read would show an error
                    output.data, output.metadata = NotebookNode({"text/markdown": NO_WIDGET}), NotebookNode()
                # Figures are readable on light and on dark pages, so they need no white one.
                output.get("metadata", {}).pop("needs_background", None)
    return time.monotonic() - began, peak


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
