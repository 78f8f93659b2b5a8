"""SkillRise trains one language-model policy to get better across tasks.

It solves a sequence of related tasks and, between tasks, rewrites one skill document that the next task starts from.
Import what you need from the modules; this one loads nothing.
"""

import os

# Idle OpenMP threads that spin stall a busy two-core machine for minutes; this must be set before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"
