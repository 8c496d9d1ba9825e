"""The reference of one_shot_norm in plain Python: any program that speaks the protocol of docs/reference/tasks.md will do."""

import array
import json
import math
import os
import sys

EPSILON = 1e-6


def norm(inputs, residual, gamma, hidden):
    """The new residual and the normed rows of one rank, with the magnitudes that bound their errors."""
    total = [sum(of_ranks) + own for *of_ranks, own in zip(*inputs, residual)]
    sizes = [sum(map(abs, of_ranks)) + abs(own) for *of_ranks, own in zip(*inputs, residual)]
    values, magnitudes = [], []
    for start in range(0, len(total), hidden):
        row, size = total[start : start + hidden], sizes[start : start + hidden]
        squares = sum(x * x for x in row) / hidden + EPSILON
        moved = sum(abs(x) * s for x, s in zip(row, size)) / hidden / squares
        scale = 1 / math.sqrt(squares)
        values += [x * scale * g for x, g in zip(row, gamma)]
        magnitudes += [(s + abs(x) * (moved + 1)) * scale * abs(g) for x, s, g in zip(row, size, gamma)]
    return {"residual_out": (total, sizes), "output": (values, magnitudes)}


def main():
    questions, answers = os.fdopen(3, "rb"), os.fdopen(4, "wb")
    while line := questions.readline():
        question = json.loads(line)
        inputs = {}
        for tensor in question["inputs"]:
            inputs[tensor["name"], tensor["rank"]] = array.array("d", questions.read(8 * math.prod(tensor["shape"])))
        ranks = range(question["world"])
        summands = [inputs["input", rank] for rank in ranks]
        hidden = dict(question["parameters"])["hidden"][0]
        of_ranks = [norm(summands, inputs["residual", rank], inputs["gamma", rank], hidden) for rank in ranks]
        header, body = [], []
        for tensor in question["outputs"]:
            values, magnitudes = of_ranks[tensor["rank"]][tensor["name"]]
            header.append({"name": tensor["name"], "rank": tensor["rank"], "elements": len(values), "magnitudes": True})
            body += [array.array("d", values).tobytes(), array.array("d", magnitudes).tobytes()]
        answers.write(json.dumps({"outputs": header}).encode() + b"\n" + b"".join(body))
        answers.flush()


if __name__ == "__main__":
    print("reference.py: ready", file=sys.stderr)
    main()
