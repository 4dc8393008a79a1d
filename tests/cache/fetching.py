"""Run by the process tests: fetch URLs, report what came, one JSON object per line."""

import json
import sys

from earthsciio.cache import Cache, sha256_file


def main(root: str, *urls: str) -> None:
    with Cache(root=root, offline=False) as cache:
        for url in urls:
            entry = cache.fetch(url)
            answer = {"url": url, "status": entry.status, "sha256": sha256_file(entry.path)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
