"""Picture 5: four policies in a round robin of 2v2 games, five replicas of each, drawn from its plan."""

from arena.config.run import RunConfig
from arena.plan.diagram import draw_plan
from arena.plan.layout import plan, ranks_of_run

PLAYERS = ("red", "blue", "green", "yellow")


def draw() -> str:
    """Return the picture as SVG."""
    config = RunConfig.model_validate(
        {
            "name": "example_30_matches",
            "steps": 1,
            "env": {"use": "touchdown", "settings": {"team_size": 2}},
            "policies": {player: {"use": "ppo"} for player in PLAYERS},
            "round_robin": {"policies": PLAYERS, "team_size": 2, "replicas": 5},
        }
    )
    # The root and six matches on the first of five nodes, six matches on each of the others.
    nodes = [max(0, rank - 1) // 30 for rank in range(ranks_of_run(config))]
    title = "A round robin of four players: 6 pairs, 5 replicas, 30 matches"
    return draw_plan(plan(config.round_list()[0].rows, nodes), {}, title)
