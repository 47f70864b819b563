"""The grammar of filters.

expression  = conjunction { "or" conjunction }
conjunction = negation { "and" negation }
negation    = "not" negation | "(" expression ")" | comparison
comparison  = field operator literal | field [ "not" ] "in" "(" literal { "," literal } ")"
field       = ( "key" | "value" ) { step } | "headers" "[" text "]"
            | "partition" | "offset" | "timestamp"
step        = "." name | "[" ( text | number ) "]"
operator    = "==" | "!=" | "<" | "<=" | ">" | ">=" | "contains" | "startswith"
literal     = text | number | "true" | "false" | "null"
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from penstock.console.filter.expressions import (
    PATH_ROOTS,
    Comparison,
    Conjunction,
    Disjunction,
    Expression,
    Literal,
    Membership,
    Negation,
    Operator,
    RecordField,
    Root,
    Step,
)
from penstock.console.filter.filter_tokens import FilterError, Token, TokenKind, tokenize

DEPTH_MAX: Final = 50
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_ROOTS: Final = {str(each): each for each in Root}
_OPERATORS: Final = {str(each): each for each in Operator}


def parse_filter(text: str) -> Expression:
    """A filter; FilterError says what is wrong, and at which column."""
    parser = _Parser(list(tokenize(text)))
    expression = parser.expression()
    parser.expect_end()
    return expression


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._index = 0
        self._depth = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._index]

    def _take(self) -> Token:
        token = self._next
        if token.kind is not TokenKind.END:
            self._index += 1
        return token

    def _skip(self, written: str) -> bool:
        """Whether this word or symbol comes next; it is taken then."""
        token = self._next
        is_next = token.kind in (TokenKind.NAME, TokenKind.SYMBOL) and token.written == written
        if is_next:
            self._index += 1
        return is_next

    def _expect(self, written: str) -> None:
        if not self._skip(written):
            raise self._error(f"{written!r} is expected, not {self._next.written}")

    def _error(self, message: str) -> FilterError:
        return FilterError(message, self._next.column)

    def expect_end(self) -> None:
        if self._next.kind is not TokenKind.END:
            raise self._error(f"'and', 'or' or the end is expected, not {self._next.written}")

    def expression(self) -> Expression:
        return self._joined("or", self._conjunction, Disjunction)

    def _conjunction(self) -> Expression:
        return self._joined("and", self._negation, Conjunction)

    def _joined(
        self,
        word: str,
        part: Callable[[], Expression],
        join: Callable[[tuple[Expression, ...]], Expression],
    ) -> Expression:
        parts = [part()]
        while self._skip(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else join(tuple(parts))

    def _negation(self) -> Expression:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._error(f"more than {DEPTH_MAX} parts are nested")
        if self._skip("not"):
            negated: Expression = Negation(self._negation())
        elif self._skip("("):
            negated = self.expression()
            self._expect(")")
        else:
            negated = self._comparison()
        self._depth -= 1
        return negated

    def _comparison(self) -> Expression:
        field = self._field()
        if self._skip("not"):
            self._expect("in")
            return Negation(self._membership(field))
        if self._skip("in"):
            return self._membership(field)
        operator = _OPERATORS.get(self._next.written)
        if operator is None or self._next.kind is TokenKind.TEXT:
            known = " ".join(_OPERATORS)
            raise self._error(f"one of {known} in is expected, not {self._next.written}")
        self._take()
        return Comparison(field, operator, self._literal(field))

    def _membership(self, field: RecordField) -> Membership:
        self._expect("(")
        literals = [self._literal(field)]
        while self._skip(","):
            literals.append(self._literal(field))
        self._expect(")")
        return Membership(field, tuple(literals))

    def _field(self) -> RecordField:
        token = self._next
        if token.kind is not TokenKind.NAME or token.written not in _ROOTS:
            raise self._error(f"a field is expected ({', '.join(_ROOTS)}), not {token.written}")
        self._take()
        root = _ROOTS[token.written]
        path = list[Step]()
        while root in PATH_ROOTS and (step := self._step()) is not None:
            path.append(step)
        if root is Root.HEADERS and (len(path) != 1 or not isinstance(path[0], str)):
            raise FilterError('a header is written headers["name"]', token.column)
        return RecordField(root, tuple(path))

    def _step(self) -> Step | None:
        if self._skip("."):
            token = self._take()
            if token.kind is not TokenKind.NAME:
                raise FilterError("a name is expected after '.'", token.column)
            return token.written
        if not self._skip("["):
            return None
        token = self._take()
        is_place = token.kind is TokenKind.NUMBER and isinstance(token.content, int)
        if token.kind is not TokenKind.TEXT and not is_place:
            raise FilterError("a text or a whole number is expected after '['", token.column)
        self._expect("]")
        step: Step = token.content
        return step

    def _literal(self, field: RecordField) -> Literal:
        token = self._take()
        if token.kind is TokenKind.NAME and token.written in _CONSTANTS:
            return _CONSTANTS[token.written]
        if token.kind not in (TokenKind.TEXT, TokenKind.NUMBER):
            raise FilterError(
                f"a text in quotes, a number, true, false or null is expected, not {token.written}",
                token.column,
            )
        if field.root is Root.TIMESTAMP and token.kind is TokenKind.TEXT:
            return _milliseconds(token)
        literal: Literal = token.content
        return literal


def _milliseconds(token: Token) -> int:
    """A time as text, such as "2026-11-18T02:00:00Z"; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(token.content)
    except ValueError:
        message = f"{token.written} is not a time such as 2026-11-18T02:00:00Z"
        raise FilterError(message, token.column) from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return round(moment.timestamp() * 1000)
