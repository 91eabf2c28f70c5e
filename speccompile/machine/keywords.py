"""Refusal of unknown keyword arguments by a function's public name, with the nearest keyword that it has."""

import inspect
from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

ELSEWHERE = {
    "do_sample": "temperature",
    "eos_token_id": "stop_token_ids",
    "max_length": "max_new_tokens",
    "n": "num_return_sequences",
    "stop_strings": "stop",
}
"""Keywords of transformers and of OpenAI's clients -> the nearest of ours, where the letters do not tell."""


def unknown_keyword(call: str, name: str, known: Collection[str]) -> TypeError:
    """Return the error about a keyword argument that is not among `known`. call: the public name of the function."""
    from difflib import get_close_matches

    same = ELSEWHERE.get(name)
    close = [same] if same in known else get_close_matches(name, known, n=1)
    right = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(sorted(known))}"
    return TypeError(f"{call}() got an unexpected keyword argument {name!r}; {right}")


def checks_keywords(call: str) -> Callable[[Function], Function]:
    """Return a decorator after which a function, or the constructor of a class, refuses unknown keywords by its public
    name, `call`."""

    def decorate(function: Function) -> Function:
        if isinstance(function, type):
            setattr(function, "__init__", decorate(getattr(function, "__init__")))  # noqa: B009, B010 -- for mypy
            return function
        known = inspect.signature(function).parameters.keys() - {"self", "cls"}
        function.__qualname__ = call  # Python's own errors, of a missing argument for example, begin with it

        @wraps(function)
        def checked(*arguments: Any, **keywords: Any) -> Any:
            if unknown := keywords.keys() - known:
                raise unknown_keyword(call, min(unknown), known)
            return function(*arguments, **keywords)

        return cast(Function, checked)

    return decorate


def named_after(public: str) -> Callable[[Class], Class]:
    """Return a decorator of a class, or of a base of one, whose methods users call by its public name: errors about
    their arguments begin with it. Methods with keywords of their own (**) refuse the unknown ones themselves."""

    def decorate(found: Class) -> Class:
        for name, method in list(vars(found).items()):
            if name.startswith("_") or not inspect.isfunction(method):
                continue
            call, kinds = f"{public}.{name}", {each.kind for each in inspect.signature(method).parameters.values()}
            if inspect.Parameter.VAR_KEYWORD in kinds:
                method.__qualname__ = call
            else:
                setattr(found, name, checks_keywords(call)(method))
        return found

    return decorate
