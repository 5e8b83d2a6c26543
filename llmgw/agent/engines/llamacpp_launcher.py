"""Run the llama.cpp server inside the `xllamacpp` wheel, until a signal ends it.

    python -m llmgw.agent.engines.llamacpp_launcher --model FILE --host H --port P [options]

Options are spelled as llama-server spells them; an unknown one ends the program with status 2. It
runs as an engine's process of its own: it knows nothing of the agent that started it.
"""

from __future__ import annotations

import argparse
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

# option spellings -> (field of CommonParams, type); a bool is a switch.
_OPTIONS: dict[tuple[str, ...], tuple[str, type]] = {
    ("--ctx-size", "-c"): ("n_ctx", int),
    ("--parallel", "-np"): ("n_parallel", int),
    ("--batch-size", "-b"): ("n_batch", int),
    ("--ubatch-size", "-ub"): ("n_ubatch", int),
    ("--gpu-layers", "--n-gpu-layers", "-ngl"): ("n_gpu_layers", int),
    ("--main-gpu", "-mg"): ("main_gpu", int),
    ("--threads-http",): ("n_threads_http", int),
    ("--cache-reuse",): ("n_cache_reuse", int),
    ("--predict", "--n-predict", "-n"): ("n_predict", int),
    ("--chat-template",): ("chat_template", str),
    ("--api-prefix",): ("api_prefix", str),
    ("--metrics",): ("endpoint_metrics", bool),
    ("--embedding", "--embeddings"): ("embedding", bool),
    ("--context-shift",): ("ctx_shift", bool),
    ("--kv-unified",): ("kv_unified", bool),
    ("--jinja",): ("use_jinja", bool),
}


def build_parser() -> argparse.ArgumentParser:
    """The command line; abbreviations are not guessed."""
    parser = argparse.ArgumentParser(prog="llamacpp", allow_abbrev=False)
    parser.add_argument("--model", "-m", required=True, help="GGUF file")
    parser.add_argument("--alias", "-a", default="", help="the served model name")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", "-t", type=int, help="threads for generation")
    parser.add_argument("--threads-batch", "-tb", type=int, help="threads for prompts")
    for spellings, (field, kind) in _OPTIONS.items():
        if kind is bool:
            parser.add_argument(*spellings, dest=field, action="store_true", default=None)
        else:
            parser.add_argument(*spellings, dest=field, type=kind)
    return parser


def fill_params(params: Any, options: argparse.Namespace) -> None:
    """Put the options into a CommonParams."""
    params.model.path = options.model
    params.hostnames = [options.host]
    params.port = options.port
    if options.alias:
        params.model_alias = {options.alias}
    if options.threads is not None:
        params.cpuparams.n_threads = options.threads
    if options.threads_batch is not None:
        params.cpuparams_batch.n_threads = options.threads_batch
    for field, _ in _OPTIONS.values():
        value = getattr(options, field)
        if value is not None:
            setattr(params, field, value)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until a signal ends the process."""
    options = build_parser().parse_args(arguments)
    # The kernel's default ends the process at once, while the model loads too: the server holds
    # nothing that needs an orderly end, and a drain came before.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    # The wheel is imported here: the options are checked, and shown by --help, without it.
    import xllamacpp  # noqa: PLC0415 - see above

    params = xllamacpp.CommonParams()
    fill_params(params, options)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        sys.exit(f"llama.cpp cannot serve {options.model}: {error}")
    sys.stdout.write(f"serving {options.alias or options.model} on {server.listening_address}\n")
    sys.stdout.flush()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
