"""Pictures of plans, and the shapes that the pictures of the structure share."""

from collections.abc import Collection, Mapping

from arena.common.colors import resolve
from arena.plan.assignment import Plan
from arena.plan.diagram.rows import Rows
from arena.plan.diagram.tiles import Tiles
from arena.plan.diagram.view import PlanView


def draw_plan(plan: Plan, colors: Mapping[str, str | None], title: str, *, frozen: Collection[str] = ()) -> str:
    """Return the plan as an SVG page, about 900 pixels wide.

    A few matches are drawn in full: one row for each, one column for each player. More become a grid, one line for
    each row of the table with its replicas side by side; far more are folded, one tile for each row of the table.

    Args:
      plan: the plan.
      colors: colour of each player, as in ``arena.common.colors.resolve``; missing ones are chosen.
      title: title of the picture; also the page's accessible title.
      frozen: players that do not learn, and so exchange no gradients.
    """
    view = PlanView(plan, resolve({player: colors.get(player) for player in plan.groups}), frozenset(frozen))
    rows = Rows(view, title)
    return rows.draw() if rows.readable else Tiles(view, title).draw()
