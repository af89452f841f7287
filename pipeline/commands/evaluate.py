"""Score a model, and print how the score is defined.

--heldout: document completion, on held-out tokens of the training documents.
--unseen: new documents, half of whose tokens are fitted and half scored.
Of restarts or kept samples the mean of their predictions is scored, and each.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from collapsar.pipeline.commands.options import add_json, add_scheduler, print_json, tls_of

HELP = "score a model on held-out tokens or unseen documents"


def configure(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:  # noqa: ARG001
    """Add the command's options."""
    parser.add_argument("model", metavar="RUN", help="a run or a model")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--heldout", metavar="CORPUS", help="further tokens of the training documents")
    which.add_argument("--unseen", metavar="CORPUS", help="other documents, with the same vocabulary")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="chooses the halves of unseen documents (default: 0)"
    )
    add_scheduler(parser, "threads")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    """Print the score."""
    from collapsar.pipeline.evaluation import evaluate

    found = evaluate(
        arguments.model,
        heldout=arguments.heldout,
        unseen=arguments.unseen,
        seed=arguments.seed,
        scheduler=arguments.scheduler,
        workers=arguments.workers,
        tls=tls_of(arguments),
    )
    if arguments.json:
        shown = asdict(found)
        if not found.members:
            del shown["members"]
        print_json(shown)
        return
    print(f"score      {found.score:.4f} nats a token")
    print(f"perplexity {found.perplexity:.2f}")
    print(f"tokens     {found.tokens:,} in {found.documents:,} documents")
    for one in found.members:
        print(f"member     {one.member}: {one.score:.4f}")
    print(f"defined as {found.definition}")
