"""The functions of a project: finds their calls in SQL, and makes Spark know them.

Spark computes a Python function before the SQL around it, for all rows. So a call gives an error as a value, and only
SQL that uses the value fails: as SQL on bad values does, within `try_eval` or not.
"""

import ast
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from sqlglot import Token, TokenType, tokenize
from sqlglot.errors import TokenError

from pulsar_lakehouse.errors import ConfigurationError
from pulsar_lakehouse.terminal import shown

DECLARATIONS = "declarations"
"""The package whose modules are the files of a project, as pipeline/loading.py reads them."""
CATALYST = "org.apache.spark.sql.catalyst"
TRY = "_try_eval"
"""The name under which SQL has Spark's expression that is NULL where another fails."""
OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET)
CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET)


@dataclass(frozen=True, kw_only=True, eq=False)
class Function:
    """A Python function that SQL can call by its name. It can be called from Python, too."""

    name: str
    arguments: T.StructType
    returns: T.DataType
    call: Callable[..., Any]
    timeout: float
    """Seconds that a call may take."""
    is_deterministic: bool = True
    is_aggregate: bool = False

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.call(*arguments, **named)

    @property
    def file(self) -> Path:
        return Path(self.call.__code__.co_filename)

    @property
    def at(self) -> str:
        """File and line, as errors name them."""
        return f"{shown(self.file)}:{self.call.__code__.co_firstlineno}"

    @cached_property
    def fingerprint(self) -> str:
        """Differs if the function does: its types, its source, and what that uses of its module and the project."""
        kinds = [*(each.dataType.simpleString() for each in self.arguments), self.returns.simpleString()]
        parts = [*kinds, str(self.is_aggregate), *_sources(self.file, {self.call.__name__}, {self.file})]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


DECLARED: dict[str, Function] = {}
"""The functions of this process's project, by name."""


class Call(NamedTuple):
    """A call in a text of SQL: its arguments, and where it begins and ends."""

    function: Function
    arguments: Sequence[str]
    start: int
    end: int


def declare(functions: Iterable[Function]) -> None:
    """Make these the functions that SQL can call."""
    named = {each.name: each for each in functions}
    if named == DECLARED:
        return
    DECLARED.clear()
    DECLARED.update(named)
    if DECLARED and SparkContext._active_spark_context is not None:
        register(SparkSession._instantiatedSession or SparkSession.active())  # the active one may be of a validation


def calls_in(sql: str) -> Iterator[Call]:
    """The outermost calls of declared functions, in the order of the text."""
    if not DECLARED:
        return
    try:
        tokens = tokenize(sql, dialect="spark")
    except TokenError:  # Spark says what is wrong
        return
    end = 0
    for at, (before, token, after) in enumerate(zip([None, *tokens], tokens, tokens[1:], strict=False)):
        function = DECLARED.get(token.text.lower())
        is_field = before is not None and before.token_type is TokenType.DOT
        if token.start < end or function is None or is_field or after.token_type is not TokenType.L_PAREN:
            continue
        if around := _around_arguments(tokens[at + 1 :]):
            # Ends of lines stay: they end comments, and errors tell lines.
            parts = [sql[one.end + 1 : other.start].strip(" ") for one, other in pairwise(around)]
            end = around[-1].end + 1
            yield Call(function, parts if "".join(parts).strip() else [], token.start, end)


def _around_arguments(tokens: Sequence[Token]) -> list[Token]:
    """The parenthesis that the tokens begin with, the commas within, and the one that closes it; empty without that."""
    depth, found = 0, [*tokens[:1]]
    for token in tokens:
        depth += (token.token_type in OPEN) - (token.token_type in CLOSE)
        if depth == 1 and token.token_type is TokenType.COMMA:
            found.append(token)
        if depth == 0:
            return [*found, token]
    return []


def called_in(sql: Iterable[str]) -> list[Function]:
    """The functions that texts of SQL call, each once, by name; also those in arguments."""
    found: dict[str, Function] = {}

    def visit(text: str) -> None:
        for call in calls_in(text):
            found[call.function.name] = call.function
            for each in call.arguments:
                visit(each)

    for text in sql if DECLARED else ():
        visit(text)
    return [found[name] for name in sorted(found)]


def fingerprints(sql: Iterable[str]) -> Mapping[str, str]:
    """What definitions have for the functions that SQL calls."""
    return {f"function {each.name}": each.fingerprint for each in called_in(sql)}


def with_calls(sql: str, given: str = "", spared: str = "") -> str:
    """SQL that Spark can run, with the calls of declared functions.

    Where a call has an error, it fails as raise_error() does. If `given` is a condition on the row, so it does where
    its arguments fail, and `try_eval` makes both NULL: the condition must be TRUE, and Spark must not know that.
    Otherwise arguments that fail stop the query, wherever they are. Aggregates, and SQL of aggregates, need that.
    Rows of which the condition `spared` is TRUE have NULL where a call has an error.
    """
    if not DECLARED:
        return sql
    for call in reversed(list(calls_in(sql))):
        applied = f"transform(array({_outcome(call, given, spared)}), _of -> {_value(call.function, spared)})[0]"
        sql = f"{sql[: call.start]}{applied}{sql[call.end :]}"
    return sql


def _value(function: Function, spared: str) -> str:
    """SQL for the value of the outcome `_of`."""
    has_value = f"_of.error IS NULL OR {spared}" if spared else "_of.error IS NULL"
    return f"if({has_value}, _of.value, raise_error(concat('function {function.name}: ', _of.error)))"


def errors_in(sql: str, given: str, spared: str = "") -> list[str]:
    """SQL for the error of each call, which is NULL if there is none; those in the arguments of others come first."""
    found: list[str] = []
    for call in calls_in(sql):
        for each in call.arguments:
            found += errors_in(each, given, spared)
        found.append(f"concat('function {call.function.name}: ', nullif({_outcome(call, given, spared)}.error, ''))")
    return found


def _outcome(call: Call, given: str, spared: str) -> str:
    """SQL for the value and the error of a call."""
    function = call.function
    named = zip(call.arguments, function.arguments, strict=False)
    casts = (
        f"CAST({with_calls(sql, given, spared)} AS {each.dataType.simpleString()}) AS `{each.name}`"
        for sql, each in named
    )
    arguments = f"struct({', '.join(casts)})"
    if function.is_aggregate:
        arguments = f"sort_array(collect_list({arguments}))"  # so that the order of rows does not matter
    elif given:
        arguments = f"if({given}, {TRY}({arguments}), NULL)"
    return f"_{function.name}({arguments})"


def register(spark: SparkSession) -> None:
    """Make a session know the declared functions, under their names after `_`.

    Raises ConfigurationError if one can't be sent to Spark's Python processes.
    """
    if not DECLARED:
        return
    from pyspark import cloudpickle
    from pyspark.sql.pandas.functions import arrow_udf  # declarations load no pyarrow
    from pyspark.sql.pandas.types import to_arrow_type

    from pulsar_lakehouse.spark.calling import Caller, told

    _register_try(spark)
    for function in DECLARED.values():
        _send_source_of(function.call.__module__)
        caller = Caller(
            name=function.name,
            call=function.call,
            kind=to_arrow_type(function.returns, timezone="UTC"),
            timeout=function.timeout,
            is_aggregate=function.is_aggregate,
        )
        try:
            cloudpickle.dumps(caller)  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ConfigurationError(
                f"{function.at}: function {function.name}: can't be sent to Spark's processes: {told(error)}: "
                "make in the function what it needs, such as a client or a lock"
            ) from error
        outcome = T.StructType().add("value", function.returns).add("error", "string")
        calls = arrow_udf(caller.values, outcome)  # type: ignore[call-overload]
        spark.udf.register(f"_{function.name}", calls if function.is_deterministic else calls.asNondeterministic())


def _register_try(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName(f"{CATALYST}.expressions.TryEval"))
    build = getattr(jvm, f"{CATALYST}.analysis.FunctionRegistryBase").build(TRY, jvm.scala.Option.empty(), kind)._2()
    spark._jsparkSession.sessionState().functionRegistry().createOrReplaceTempFunction(TRY, build, "built-in")


def _send_source_of(module: str) -> None:
    """Send the functions of a module with the tasks, as Python processes of Spark can't import declarations."""
    from pyspark import cloudpickle

    name = DECLARATIONS if module.partition(".")[0] == DECLARATIONS else module
    if name in sys.modules:
        cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]


def _sources(file: Path, names: set[str], read: set[Path]) -> Iterator[str]:
    """The statements of a module that names need, without comments and docstrings, and the modules that they import.

    Modules are those of the project, each once: `read` are known already. Of libraries, only the import is there.
    """
    statements = ast.parse(file.read_bytes()).body
    wanted, needed = {*names, "*"}, list[ast.stmt]()
    while found := [each for each in statements if each not in needed and wanted & _bound(each)]:
        needed += found
        wanted |= {node.id for each in found for node in ast.walk(each) if isinstance(node, ast.Name)}
    for each in sorted(needed, key=statements.index) or statements:  # a function within another needs all
        yield ast.unparse(_without_docstrings(each))
        yield from _of_imported(each, file.parent, read)


def _of_imported(tree: ast.AST, folder: Path, read: set[Path]) -> Iterator[str]:
    """The modules of the project that are imported anywhere in it, and those that these import in turn."""
    for other in (file for node in ast.walk(tree) for file in _imported(node, folder) if file not in read):
        read.add(other)
        module = ast.parse(other.read_bytes())
        yield ast.unparse(_without_docstrings(module))
        yield from _of_imported(module, folder, read)


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a value to, or may change: those that it only mentions, too."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {statement.name}
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():  # such as NAMES["x"] = 1
            changed = [node for node in ast.walk(statement) if isinstance(getattr(node, "ctx", None), ast.Store)]
            return {node.id for each in changed for node in ast.walk(each) if isinstance(node, ast.Name)}
    found = set[str]()  # such as NAMES.append("x"), or an import, within `try` or not
    for node in ast.walk(statement):
        match node:
            case ast.Name():
                found.add(node.id)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Import() | ast.ImportFrom():
                found |= {(each.asname or each.name).partition(".")[0] for each in node.names}
    return found


def _imported(node: ast.AST, folder: Path) -> Iterator[Path]:
    """The modules of the project that an import names: what it imports from a module may be one, too."""
    match node:
        case ast.ImportFrom(module=module, level=level) if level or str(module).partition(".")[0] == DECLARATIONS:
            names = [module or "", *(".".join(filter(None, (module, each.name))) for each in node.names)]
        case ast.Import():
            names = [each.name for each in node.names if each.name.partition(".")[0] == DECLARATIONS]
        case _:
            return
    paths = (name.removeprefix(f"{DECLARATIONS}.").replace(".", "/") for name in names)
    yield from (file for path in paths if (file := folder / f"{path}.py").is_file())


def _without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module) and (
            ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return tree
