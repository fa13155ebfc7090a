#!/usr/bin/env bash
# Builds the integration tests and prints their file; arguments are cargo's, such as --features. With
# the workspace as a whole, as `make test` has built it: other packages have other features.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --workspace --no-run --message-format=json "$@" | python3 -c '
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    own = os.path.join(os.getcwd(), "tests/it/main.rs")
    if message.get("executable") and message["target"]["src_path"] == own:
        print(message["executable"])
'
