#!/usr/bin/env bash
# Builds the integration tests and prints their file; arguments are cargo's, such as --features.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test -p kiln --no-run --test it --message-format=json "$@" | python3 -c '
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] == "it":
        print(message["executable"])
'
