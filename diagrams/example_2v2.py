"""Picture 4: the opening example, blue against red, two entities and two workers each, drawn from its plan."""

from arena.config.run import RunConfig
from arena.plan.diagram import draw_plan
from arena.plan.layout import plan, ranks_of_run


def draw() -> str:
    """Return the picture as SVG."""
    config = RunConfig.model_validate(
        {
            "name": "example_2v2",
            "steps": 1,
            "env": {"use": "touchdown", "settings": {"team_size": 2}},
            "policies": {"blue": {"use": "ppo"}, "red": {"use": "ppo"}},
            "matches": [{"seats": ["blue", "blue", "red", "red"]}],
        }
    )
    one_node = [0] * ranks_of_run(config)
    return draw_plan(plan(config.round_list()[0].rows, one_node), {}, "A 2v2 game: blue against red")
