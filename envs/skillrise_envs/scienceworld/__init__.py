"""ScienceWorld, a text world of grade-school science, on its real engine.

Read `env` first; `jvm` runs the engine, `tasks` names what there is to do, `expert` knows the solutions.
"""

from skillrise_envs.scienceworld.env import ScienceWorldEnv

__all__ = ["ScienceWorldEnv"]
