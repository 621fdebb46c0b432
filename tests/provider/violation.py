"""One broken rule, and how the provider words it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .wordings import Problem, wire_error

__all__ = ["Violation", "empty_array", "missing", "wrong_type"]


@dataclass(frozen=True, slots=True)
class Violation:
    """`rule` is our name; `message` the provider's text; `param` where it is (the wire's notation, or None)."""

    rule: str
    message: str
    param: str | None = None
    code: Any = None
    status: int = 400
    kind: str = ""

    def problem(self, wire: str, profile: str = "default") -> Problem:
        """The error answer, in the wire's envelope (some OpenAI-compatible providers have their own)."""
        if wire == "chat" and profile == "mistral":
            kind = self.kind or "invalid_request_message_order"
            body = {"object": "error", "message": self.message, "type": kind, "param": None, "code": self.code}
            return Problem(self.status, body)
        if wire == "chat" and profile == "gemini":
            error = {"code": self.status, "message": self.message, "status": "INVALID_ARGUMENT"}
            return Problem(self.status, [{"error": error}])
        if profile == "bedrock":
            return Problem(self.status, {"message": self.message})
        param, code = self.param, self.code
        return wire_error(wire, self.status, self.message, kind=self.kind, code=code, param=param)


def missing(param: str) -> Violation:
    return Violation("missing", f"Missing required parameter: '{param}'.", param, "missing_required_parameter")


def wrong_type(param: str, wanted: str, got: Any) -> Violation:
    names = {
        str: "a string",
        list: "an array",
        dict: "an object",
        bool: "a boolean",
        int: "an integer",
        float: "a number",
    }
    found = "null" if got is None else names.get(type(got), "something else")
    text = f"Invalid type for '{param}': expected {wanted}, but got {found} instead."
    return Violation("wrong-type", text, param, "invalid_type")


def empty_array(param: str) -> Violation:
    text = f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an empty array instead."
    return Violation("empty-array", text, param, "empty_array")
