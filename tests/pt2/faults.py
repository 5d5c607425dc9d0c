"""faults.py: four of the models of models.py (nanogpt and lenet with dropout), trained with and without faults.

    python tests/pt2/faults.py build/release/bin/muster [--faults kill:18,pause:4,hang:2,leave:3,join:3] [MODEL ..]

Needs PyTorch and torchvision. For each model: exports it, and has `muster verify` compare four workers with those faults
to one worker without any, bit for bit. The exit code is 1 if one is not equal.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torchvision.io

from models import MODELS, export

MNIST = Path(__file__).resolve().parents[2] / "examples" / "data" / "mnist"


def mnist(folder):
    return (f"format: idx, images: {MNIST}/train-images-idx3-ubyte.gz, labels: {MNIST}/train-labels-idx1-ubyte.gz, "
            "mean: 0.1307, deviation: 0.3081")


def text(folder):
    letters = "".join(chr(65 + i) for i in range(26)) + "".join(chr(97 + i) for i in range(26)) + "0123456789 .\n"
    generator = torch.Generator().manual_seed(3)
    written = letters + "".join(letters[i] for i in torch.randint(len(letters), (40000,), generator=generator))
    (folder / "text.txt").write_text(written)
    return f"format: text, path: {folder}/text.txt, context: 32"


def images(folder):
    generator = torch.Generator().manual_seed(3)
    for name in range(10):
        place = folder / "images" / str(name)
        place.mkdir(parents=True)
        for i in range(60):
            noise = torch.randint(160, (3, 32, 32), generator=generator, dtype=torch.uint8)
            torchvision.io.write_png(noise + 9 * name, str(place / f"{i}.png"))
    return f"format: images, path: {folder}/images, mean: 0.45, deviation: 0.225, args: {{ size: 32, resize: 32 }}"


DATA = {"lenet": mnist, "custom-loss": mnist, "nanogpt": text, "resnet18": images}

JOB = """\
muster: 1
name: {name}
seed: 7
model: {{ file: net.pt2, loss: {loss} }}
data: {{ train: {{ {data} }} }}
batch: 16
lanes: 4
passes: 0
steps: {steps}
optimizer: {{ kind: sgd, lr: 0.01, momentum: 0.9 }}
checkpoint: {{ every: 100 steps }}
"""


def verify(muster, name, faults, steps):
    with tempfile.TemporaryDirectory(prefix="muster-pt2-") as made:
        folder = Path(made)
        torch.manual_seed(1)
        case = MODELS[name]()
        export(case, folder / "net.pt2")
        (folder / "job.yaml").write_text(JOB.format(name=name, loss=case.loss, data=DATA[name](folder), steps=steps))
        words = [muster, "verify", folder / "job.yaml", "--workers", "4", "--faults", faults, "--seed", "5", "-o", "json"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=folder)
    report = next((r for r in map(json.loads, done.stdout.splitlines()) if "equal" in r), None)
    if report is None:
        print(f"{name}: {done.stderr.strip()}")
        return False
    hit = len(report["timeline"])
    print(f"{name}: {'equal' if report['equal'] else 'DIFFERENT ' + str(report['differences'])}, {hit} faults", flush=True)
    return report["equal"] and done.returncode == 0 and report["faults_left"] == report["faults_missed"] == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("muster", type=Path)
    parser.add_argument("models", nargs="*", default=list(DATA))
    parser.add_argument("--faults", default="kill:18,pause:4,hang:2,leave:3,join:3")
    parser.add_argument("--steps", type=int, default=1500)
    args = parser.parse_intermixed_args()  # models may stand behind options
    results = [verify(args.muster.resolve(), name, args.faults, args.steps) for name in args.models]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
