"""Ready-made sequence files; `README.md` beside this file says how each was made."""

from pathlib import Path


def path(name: str) -> Path:
    """The file `name`, for example `scienceworld/train.jsonl`."""
    found = Path(__file__).parent / name
    if not found.is_file():
        raise FileNotFoundError(f"there is no ready-made curriculum {name!r}")
    return found
