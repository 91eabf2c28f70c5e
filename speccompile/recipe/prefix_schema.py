"""Schema of a prefix in recipe.yaml, and of names."""

from speccompile.plan.section import Section
from speccompile.plan.section import required as _required

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
NAME_EXPECTED = "a name of letters, digits, '.', '_' and '-' that begins with a letter or digit"


class Prefix(Section):
    name: str = _required(NAME_EXPECTED, "system", pattern=NAME)
    prompt_file: str = _required("a file with the text of the prefix", "system.txt", min_length=1)
