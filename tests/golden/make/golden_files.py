"""Files of the golden data: how they are written, read and compared."""
import json
import pathlib

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
LINE_WIDTH = 115


def is_scalar(value):
    return not isinstance(value, (dict, list))


def wrapped(items, indent):
    """Lines that hold as many items as fit."""
    lines = [""]
    for item in items:
        longer = f"{lines[-1]} {item}," if lines[-1] else f"{item},"
        if lines[-1] and len(indent) + len(longer) > LINE_WIDTH:
            lines.append(f"{item},")
        else:
            lines[-1] = longer
    return ("\n" + indent).join(lines)[:-1]


def json_text(value, indent=""):
    """JSON with one member per line; lists of numbers or words fill their lines."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        members = [f"{inner}{json.dumps(key)}: {json_text(member, inner)}" for key, member in value.items()]
        return "{\n" + ",\n".join(members) + "\n" + indent + "}"
    if isinstance(value, list) and value and not all(map(is_scalar, value)):
        return "[\n" + ",\n".join(inner + json_text(member, inner) for member in value) + "\n" + indent + "]"
    if isinstance(value, list) and value:
        words = [json.dumps(member) for member in value]
        line = ", ".join(words)
        return f"[{line}]" if len(inner) + len(line) <= LINE_WIDTH - 4 else f"[\n{inner}{wrapped(words, inner)}\n{indent}]"
    return json.dumps(value)


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json_text(value) + "\n")


def write_tensors(path, tensors):
    """One safetensors file; every tensor is stored as it is."""
    from safetensors.torch import save_file
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})


def committed(name):
    """A JSON file of the committed data. Only bounds and words are taken from it, never numbers that a program makes."""
    return json.loads((DATA / name).read_text())


def with_hex(numbers, keys):
    """The lists `keys` of `numbers` followed by the same numbers in hexadecimal, which no reader rounds."""
    result = {}
    for key, value in numbers.items():
        result[key] = value
        if key in keys:
            result[key + "_hex"] = [float(number).hex() for number in value]
    return result


def made_by(*packages):
    """Versions of what made a file."""
    import importlib.metadata
    import platform

    def version(name):  # torch says 2.11.0+cu130
        return platform.python_version() if name == "python" else importlib.metadata.version(name).split("+")[0]

    return {name: version(name) for name in packages}
