"""`bayplan calibrate`: measures a device and writes down its hardware file."""

from pathlib import Path

import click

from experiments.commands.devices import DEVICE_HELP, SIM_HARDWARE, chosen, ready, require_device
from experiments.commands.outputs import writable
from experiments.commands.show import print_figures
from experiments.hardware import read_hardware
from solvers.ir.amounts import show_bytes
from solvers.ir.codec import document_to_raw, write_json
from solvers.ir.hardware import Hardware

HELP = """Measure a device: arithmetic, memory, launches, and its link with the host.

On device sim this measures the simulation, which should find the numbers of its own hardware file. With --collectives,
under torchrun, all-reduce, all-gather and reduce-scatter too: the file then holds all devices of the machine."""


@click.command("calibrate", help=HELP)
@click.option("--device", metavar="D", help=DEVICE_HELP)
@click.option(
    "--hardware", metavar="H", help=f"What device sim models: a file or a name in conf/hardware ({SIM_HARDWARE})."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="H.json", help="Where to write the hardware file.")
@click.option("--collectives", is_flag=True, help="Under torchrun: also what the processes exchange (cuda or cpu).")
def command(device: str | None, hardware: str | None, out: Path | None, collectives: bool) -> int:
    """See HELP."""
    require_device(device, hardware)
    place = None if out is None else writable(out, "--out")
    measured = _of_all(device, hardware) if collectives else _of_one(device, hardware)
    if measured is None:
        return 0
    if place is not None:
        write_json(place, document_to_raw(measured))
    _print(measured, out)
    return 0


def _of_one(device: str | None, hardware: str | None) -> Hardware:
    from runtime.device import use_sim
    from runtime.profile import calibrate

    if chosen(device, hardware) == "sim":  # its kernels take what they take whatever the numbers
        return calibrate(use_sim(read_hardware(hardware or SIM_HARDWARE), shapes_only=True).device)
    return calibrate(ready(device, hardware))


def _of_all(device: str | None, hardware: str | None) -> Hardware | None:
    """The whole machine, told by the first of its processes; None for the others, which only take part."""
    import torch.distributed as dist

    from runtime.profile import calibrate
    from runtime.profile.collectives import fit_ring, joined, measure_collectives, with_ring

    with joined(chosen(device, hardware)) as place:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        alone = calibrate(place) if rank == 0 else None  # while the others wait at the first collective
        timings = measure_collectives(place)
    return None if alone is None else with_ring(alone, ranks, fit_ring(timings, ranks))


def _print(measured: Hardware, out: Path | None) -> None:
    figures: list[tuple[str, str | None]] = []
    for device in measured.devices:
        figures += [(f"{device.name}, memory", show_bytes(device.memory_bytes))]
        figures += [
            (f"{device.name}, {kind}", f"{rate / 1e9:.1f} GFLOP/s") for kind, rate in device.flops_per_s.items()
        ]
        figures += [(f"{device.name}, memory bandwidth", f"{device.bytes_per_s / 1e9:.2f} GB/s")]
        figures += [(f"{device.name}, launch", f"{device.launch_us:.2f} µs")]
    for link in measured.links:
        about = f"{link.bytes_per_s / 1e9:.2f} GB/s, latency {link.latency_us:.2f} µs, {link.duplex}"
        figures.append((f"link {link.a} - {link.b}", about))
    figures += [("source", measured.source)]
    figures += [("written to", "nowhere: give --out H.json to keep it" if out is None else str(out))]
    print_figures(measured.name, figures)
