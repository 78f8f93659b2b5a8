"""What SkillRise shows, made anew: see README.md."""
