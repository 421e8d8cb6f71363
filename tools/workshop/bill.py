"""The bill of materials of a release: SPDX 2.3, in JSON."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workshop import parts
from workshop.paths import version
from workshop.systems import System

Json = dict[str, Any]
HOLDER = "Copyright (c) 2026 Allod contributors"


def bill_of(artifacts: Mapping[Path, System | None], epoch: str) -> str:
    """What each of these files is, and what is built into it."""
    digests = {path: digest(path) for path in artifacts}
    document = _identifier("DOCUMENT")
    relations = [_relation(document, "DESCRIBES", _of_file(path)) for path in artifacts]
    contained: dict[str, Json] = {}
    for path, system in artifacts.items():
        if system is None:
            # Sources of Allod alone.
            continue
        for part in parts.PARTS:
            described = _part(part, system)
            identifier = described["SPDXID"]
            contained[identifier] = described
            relations.append(_relation(_of_file(path), "CONTAINS", identifier))
    whole = hashlib.sha256("".join(sorted(digests.values())).encode()).hexdigest()
    made = datetime.fromtimestamp(int(epoch), UTC)
    bill = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": document,
        "name": f"allod-{version()}",
        "documentNamespace": f"https://spdx.org/spdxdocs/allod-{version()}-{whole}",
        "creationInfo": {
            "created": made.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": [f"Tool: allod-release-{version()}"],
        },
        "packages": [
            *(_artifact(path, digests[path]) for path in artifacts),
            *(contained[name] for name in sorted(contained)),
        ],
        "relationships": relations,
    }
    return json.dumps(bill, indent=2) + "\n"


def sums_of(files: Iterable[Path]) -> str:
    """The checksums, as sha256sum reads them."""
    return "".join(f"{digest(path)}  {path.name}\n" for path in sorted(files))


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _artifact(path: Path, sha256: str) -> Json:
    return {
        **_package(_of_file(path), path.name, version(), "MIT", parts.UNKNOWN),
        "packageFileName": path.name,
        "checksums": [{"algorithm": "SHA256", "checksumValue": sha256}],
        "copyrightText": HOLDER,
        "primaryPackagePurpose": "INSTALL",
    }


def _part(part: parts.Part, system: System) -> Json:
    number = part.version(system)
    identifier = _identifier(f"Part-{part.name}-{number}")
    return {
        **_package(identifier, part.name, number, part.licence, part.home),
        "copyrightText": parts.UNKNOWN,
        "primaryPackagePurpose": "LIBRARY",
        "comment": f"in {part.within}",
    }


def _package(
    identifier: str, name: str, number: str, licence: str, location: str
) -> Json:
    return {
        "SPDXID": identifier,
        "name": name,
        "versionInfo": number,
        "downloadLocation": location,
        "filesAnalyzed": False,
        "licenseConcluded": licence,
        "licenseDeclared": licence,
    }


def _relation(one: str, kind: str, other: str) -> Json:
    return {
        "spdxElementId": one,
        "relationshipType": kind,
        "relatedSpdxElement": other,
    }


def _of_file(path: Path) -> str:
    return _identifier(f"Package-{path.name}")


def _identifier(name: str) -> str:
    return f"SPDXRef-{re.sub(r'[^A-Za-z0-9.]+', '-', name)}"
