"""Breadth first through every state that a model can reach. A model has `first()`, `steps(state)` (the states that can
follow), `check(state)` and `describe(state)`; it raises Wrong where a promise is broken."""

import argparse
import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Wrong(Exception):
    pass


def read_table(source, prefix, header):
    """The moves of a transition table in C: pairs of names, "none" for a row that is new."""
    names = dict(re.findall(rf'#define {prefix}_(\w+)\s+"(\w+)"', (ROOT / header).read_text()))
    rows = re.findall(rf"\{{ (NULL|{prefix}_\w+), {prefix}_(\w+), ", (ROOT / source).read_text())
    assert len(rows) > 10, f"no table of transitions in {source}"
    return {("none" if a == "NULL" else names[a[len(prefix) + 1:]], names[b]) for a, b in rows}


def explore(models):
    """Every model at once, so that a short way to a mistake is found early: (number of states, None, []), or what is
    wrong and the way there."""
    came_from = {(m, m.first()): None for m in models}
    queue = collections.deque(came_from)
    while queue:
        at = queue.popleft()
        model, s = at
        try:
            model.check(s)
            for n in model.steps(s):
                if (model, n) not in came_from:
                    came_from[model, n] = at
                    queue.append((model, n))
        except Wrong as e:
            path = []
            while at is not None:
                path.append(model.describe(at[1]))
                at = came_from[at]
            return len(came_from), str(e), path[::-1]
    return len(came_from), None, []


def main(text, rules, models):
    """Explores `models(without)`; the status is 1 when one of them goes wrong."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--without", choices=rules, action="append", default=[], metavar="RULE",
                        help="leave a rule out and see which promise breaks: " + ", ".join(rules))
    parser.add_argument("--rules", action="store_true", help="list the rules")
    options = parser.parse_args()
    if options.rules:
        print("\n".join(rules))
        return 0
    count, wrong, path = explore(models(set(options.without)))
    print("\n".join(path + [f"{count} states: {wrong or 'all is well'}"]))
    return 1 if wrong else 0
