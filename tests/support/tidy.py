"""The house rules that no linter knows, as pure functions from source text to problems.

Each check takes one module and answers a line for each place that breaks its rule. There is no
list of exceptions: what a rule allows, and where, is part of the rule.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

ROOMS = ("backends", "changelog", "runtime", "savepoints", "storage")
SIDES = ("benchmarks", "examples", "tests", "tools")

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 100

CLOCK = "storage/clock.py"
ENTROPY = "storage/entropy.py"
KITS = ("backends/testing/", "runtime/sinks/testing/", "storage/testing/")
PICKLING = "runtime/spark/launching/pickling.py"
DELETERS = {
    "storage/places/local.py": "objects by checked names below the root, own hidden files, probes",
    "storage/places/fsspec/objects.py": "likewise",
    "backends/working_directory.py": "directories of ours, held by this process or by none",
    "backends/rocksdb/database.py": "in the store's own working directory",
    "backends/rocksdb/files.py": "likewise",
    "backends/rocksdb/options.py": "likewise",
    "changelog/writing/local_copies.py": "by checked names, in the marked folder of copies",
    "runtime/sinks/files/local_folder.py": "hidden files of a sink, with checked names",
    "runtime/sinks/files/fsspec_folder.py": "likewise",
    "runtime/task/spill.py": "files that it has made, in the slot's own working directory",
    "runtime/control/registry.py": "files of runs without a live driver, by their whole names",
}
"""Where files are deleted, and which: everything else asks one of these."""
DELETIONS = ("unlink", "rmtree", "rmdir", "removedirs", "rm_file", "rm")
TEMPORARY = ("mkdtemp", "mkstemp", "TemporaryDirectory", "NamedTemporaryFile", "TemporaryFile")
STOPWATCHES = ("time.perf_counter", "time.perf_counter_ns", "time.process_time")
CLOCKS = (
    "time",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
)
CHANCES = (
    "random",
    "secrets",
    "os.urandom",
    "os.getrandom",
    "uuid.uuid1",
    "uuid.uuid4",
    "uuid.uuid6",
    "uuid.uuid7",
)
RUNNERS = (
    *(f"{module}.{name}" for module in ("pickle", "cloudpickle", "pyspark.cloudpickle", "dill")
      for name in ("load", "loads", "Unpickler")),
    "marshal",
    "shelve",
    "joblib",
    "pandas.read_pickle",
    "pyspark.serializers",
)  # fmt: skip
"""Functions that can run any code that their input contains."""
UNPICKLING = {
    "runtime/spark/launching/pickling.py": "part of a Spark task, which unpickles the rest",
    "runtime/operators/user_code.py": "functions, which came with a task of Spark",
    "backends/values/codec.py": "values of state, where a reader allows pickles by name",
}
EXECUTING = {"runtime/cli/program.py": "the program that a person has named"}
"""Where code that comes from elsewhere is run, and where it comes from. None of it comes over the
network: see `SECURITY.md`, which has to name a place that is added here."""


OTHER_PROJECT = re.compile(
    r"\bholdfast\\?\[[a-z]|pip3? install [^`']*\bholdfast(?![\w./-])"
    r"|(?:\bversion|distribution|requires)\([\"']holdfast[\"']"
)
"""An extra of it, the command that installs it, or what is asked of it."""


@dataclass(frozen=True)
class Module:
    """One source file: its path from the root of the repository, and its text."""

    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree, walked once for all checks."""
        return tuple(ast.walk(self.tree))

    @property
    def top(self) -> str:
        return self.path.partition("/")[0]

    @property
    def is_in_room(self) -> bool:
        return self.top in ROOMS

    @property
    def is_package(self) -> bool:
        return self.path.endswith("/__init__.py")

    def problem(self, line: int, what: str) -> str:
        return f"{self.path}:{line}: {what}"


Check = Callable[[Module], list[str]]


def is_within(name: str, banned: Collection[str]) -> bool:
    """Whether a dotted name is one of these, or inside one of them."""
    return any(name == each or name.startswith(f"{each}.") for each in banned)


def files_are_short(module: Module) -> list[str]:
    lines = module.source.count("\n")
    if lines <= MAX_FILE_LINES:
        return []
    return [module.problem(lines, f"{lines} lines, at most {MAX_FILE_LINES}: two things in one?")]


def functions_are_short(module: Module) -> list[str]:
    return [
        module.problem(node.lineno, f"{node.name} has {lines} lines, at most {MAX_FUNCTION_LINES}")
        for node in module.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]


def lines_are_short(module: Module) -> list[str]:
    return [
        module.problem(number, f"{len(line)} columns, at most {MAX_COLUMNS}")
        for number, line in enumerate(module.source.splitlines(), start=1)
        if len(line) > MAX_COLUMNS
    ]


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Every dotted name that a module imports, with its line, wherever the import stands."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, f"{'.' * node.level}{node.module or ''}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func).rpartition(".")[2]
            if called in {"import_module", "__import__"}:
                yield node.lineno, str(node.args[0].value)


def imports_name_the_house(module: Module) -> list[str]:
    return [
        module.problem(line, f"imports {name}: a second copy; import holdfast.{name.lstrip('.')}")
        for line, name in imports(module)
        if is_within(name, ROOMS) or name.startswith(".")
    ]


def spark_stays_in_its_room(module: Module) -> list[str]:
    if module.path.startswith("runtime/spark/") or module.top in {
        "tests",
        "benchmarks",
        "examples",
    }:
        return []
    return [
        module.problem(line, f"imports {name}: only runtime/spark knows Spark")
        for line, name in imports(module)
        if is_within(name, ("pyspark", "py4j"))
    ]


def users_objects_are_pickled_in_one_place(module: Module) -> list[str]:
    if module.path == PICKLING or not module.is_in_room:
        return []
    # What a class loses by the plain cloudpickle, the other process cannot know
    return [
        module.problem(line, f"imports {name}: users' objects go through {PICKLING}")
        for line, name in imports(module)
        if "cloudpickle" in name.split(".")
    ]


def none_is_found_by_identity(module: Module) -> list[str]:
    if not module.is_in_room:
        return []
    # Values of state may be among those that `in` compares, and their `__eq__` is the user's
    return [
        module.problem(
            node.lineno, "`None in` compares: use has_none of holdfast.backends.values.normalizing"
        )
        for node in module.nodes
        if isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.In | ast.NotIn)
        and isinstance(node.left, ast.Constant)
        and node.left.value is None
    ]


def local_names(module: Module) -> dict[str, str]:
    """What each imported name stands for, by the name it has in this module."""
    names = {}
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or whole] = whole
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.AST) -> list[str]:
    """The parts of a plain dotted name; nothing for any other expression."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (before := dotted(node.value)):
        return [*before, node.attr]
    return []


@cache
def uses(module: Module) -> list[tuple[ast.expr, str]]:
    """Every use of something out of a module that is imported, under its full dotted name."""
    names = local_names(module)
    found: list[tuple[ast.expr, str]] = []
    for node in module.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and (parts := dotted(node)):
            whole = ".".join([names.get(parts[0], ""), *parts[1:]])
            if parts[0] in names and "." in whole:
                found.append((node, whole))
    return found


def time_comes_from_the_clock(module: Module) -> list[str]:
    if module.path == CLOCK:
        return []
    allowed = STOPWATCHES if module.top in {"benchmarks", "tools"} else ()
    return [
        module.problem(node.lineno, f"{name}: time comes in through holdfast.storage.clock")
        for node, name in uses(module)
        if is_within(name, CLOCKS) and name not in allowed
    ]


def files_are_deleted_in_known_places(module: Module) -> list[str]:
    if not module.is_in_room or "/testing/" in module.path:
        return []
    what = "deletes files: say in tidy.DELETERS which, and why they are ours"
    where = "nothing removes it after a kill: use WorkingDirectory"
    problems = [
        module.problem(node.lineno, f"{node.attr} {what}")
        for node in module.nodes
        if isinstance(node, ast.Attribute)
        and node.attr in DELETIONS
        and module.path not in DELETERS
    ]
    for node, name in uses(module):
        if is_within(name, ("os.remove", "shutil.rmtree")) and module.path not in DELETERS:
            problems.append(module.problem(node.lineno, f"{name} {what}"))
        if is_within(name, tuple(f"tempfile.{each}" for each in TEMPORARY)):
            problems.append(module.problem(node.lineno, f"{name}: {where}"))
    return problems


def chance_comes_from_entropy(module: Module) -> list[str]:
    if module.path == ENTROPY:
        return []
    seeded = {
        id(node.func)
        for node in module.nodes
        if isinstance(node, ast.Call) and (node.args or node.keywords)
    }
    annotations = {id(part) for each in annotated(module.nodes) for part in ast.walk(each)}
    is_test = module.top in {"tests", "benchmarks"} or module.path.startswith(KITS)
    allowed = seeded | annotations if is_test else annotations
    return [
        module.problem(node.lineno, f"{name}: chance comes in through holdfast.storage.entropy")
        for node, name in uses(module)
        if is_within(name, CHANCES) and not (name == "random.Random" and id(node) in allowed)
    ]


def nothing_that_comes_in_is_run(module: Module) -> list[str]:
    """Neither unpickled nor evaluated. The conformance kits unpickle what they have pickled."""
    if not module.is_in_room or module.path.startswith(KITS):
        return []
    found = [
        (node.lineno, name)
        for node, name in uses(module)
        if is_within(name, RUNNERS) and module.path not in UNPICKLING
    ]
    found += [
        (node.lineno, node.func.id)
        for node in module.nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"eval", "exec"}
        and module.path not in EXECUTING
    ]
    return [module.problem(line, f"{name}: runs code that comes in") for line, name in found]


def what_cannot_be_read_is_foreseen(module: Module) -> list[str]:
    """A handler of a decoder's error catches every error that msgspec's decoders raise."""
    if not module.is_in_room:
        return []
    names = {
        handler.lineno: {name for each in ast.walk(handler.type) for name in dotted(each)}
        for node in module.nodes
        if isinstance(node, ast.Try) and any(map(_decodes, node.body))
        for handler in node.handlers
        if handler.type is not None
    }
    return [
        module.problem(line, "msgspec's errors are not all that is raised: catch UNREADABLE")
        for line, caught in names.items()
        if caught & {"MsgspecError", "DecodeError", "ValidationError"}
        and not caught & {"ValueError", "UNREADABLE"}
    ]


def _decodes(node: ast.AST) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == "decode" for each in ast.walk(node))


def annotated(nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """Every annotation."""
    for node in nodes:
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns


def flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module's top level, those under `if`, `try` and `with` too."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from flat(getattr(node, part, []))
        for handler in getattr(node, "handlers", []):
            yield from flat(handler.body)


def targets(node: ast.stmt) -> list[str]:
    """The names that one statement of a module binds, imports left out."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        parts = [part for target in node.targets for part in ast.walk(target)]
        return [
            part.id
            for part in parts
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        ]
    return []


def declared(module: Module) -> list[str] | None:
    """What `__all__` lists, or None where there is none that can be read."""
    for node in module.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and targets(node) == ["__all__"]:
            try:
                return list(ast.literal_eval(node.value)) if node.value else None
            except ValueError:
                return None
    return None


def re_exported(module: Module) -> list[str]:
    return [
        alias.asname or alias.name
        for node in flat(module.tree.body)
        if isinstance(node, ast.ImportFrom) and is_own(node.module or "")
        if node.module != "__future__"
        for alias in node.names
    ]


def all_is_what_is_public(module: Module) -> list[str]:
    if not module.is_in_room:
        return []
    listed = declared(module)
    if listed is None:
        return [module.problem(1, "no __all__ that is a plain list")]
    defined = [name for node in flat(module.tree.body) for name in targets(node)]
    names = re_exported(module) if module.is_package else defined
    public = {name for name in names if not name.startswith("_")}
    wrong = [f"__all__ lists {name}, which is not public here" for name in set(listed) - public]
    wrong += [f"{name} is public and not in __all__" for name in public - set(listed)]
    wrong += [f"__all__ lists {name} twice" for name in set(listed) if listed.count(name) > 1]
    return [module.problem(1, what) for what in sorted(wrong)]


def packages_only_re_export(module: Module) -> list[str]:
    if not (module.is_in_room and module.is_package):
        return []
    return [
        module.problem(node.lineno, f"{type(node).__name__} in an __init__.py that only re-exports")
        for place, node in enumerate(module.tree.body)
        if not (
            (place == 0 and ast.get_docstring(module.tree) is not None)
            or is_re_export(node)
            or is_lazy_re_export(node)
            or targets(node) == ["__all__"]
        )
    ]


def is_re_export(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and is_own(node.module or "")


def is_lazy_re_export(node: ast.stmt) -> bool:
    """Either of its two parts: imports for type checkers, `__getattr__` at run time."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "typing" and [alias.name for alias in node.names] == ["TYPE_CHECKING"]
    return (
        isinstance(node, ast.If)
        and dotted(node.test) == ["TYPE_CHECKING"]
        and all(map(is_re_export, node.body))
        and [targets(each) for each in node.orelse] == [["__getattr__"]]
    )


def other_project_is_not_named(module: Module) -> list[str]:
    """The name on the package index is `holdfast-spark`; `holdfast` there is a stranger's."""
    return [
        module.problem(number, f"another project on the package index is named: {found[0]}")
        for number, line in enumerate(module.source.splitlines(), start=1)
        if (found := OTHER_PROJECT.search(line))
    ]


def is_own(name: str) -> bool:
    return is_within(name, ("holdfast", "__future__"))


CHECKS: tuple[Check, ...] = (
    files_are_short,
    functions_are_short,
    lines_are_short,
    imports_name_the_house,
    spark_stays_in_its_room,
    users_objects_are_pickled_in_one_place,
    none_is_found_by_identity,
    time_comes_from_the_clock,
    files_are_deleted_in_known_places,
    chance_comes_from_entropy,
    nothing_that_comes_in_is_run,
    what_cannot_be_read_is_foreseen,
    all_is_what_is_public,
    packages_only_re_export,
    other_project_is_not_named,
)


def packages_match(package_dir: Mapping[str, str], files: Collection[str]) -> list[str]:
    """Compare what pyproject.toml lists with the files of the rooms, both ways.

    A package that is not listed is missing from the wheel, and a file beside a missing
    `__init__.py` from the checks above, without a word.
    """
    folders = {path.rpartition("/")[0] for path in files if path.endswith(".py")}
    listed = set(package_dir.values())
    problems = [f"{folder}: not listed in pyproject.toml" for folder in folders - listed]
    problems += [f"{folder}: listed in pyproject.toml, has no code" for folder in listed - folders]
    problems += [
        f"{folder}: has no {needed}"
        for folder in folders
        for needed in ("__init__.py", "py.typed")
        if f"{folder}/{needed}" not in files
    ]
    problems += [
        f"{package}: maps to {folder}"
        for package, folder in package_dir.items()
        if package != f"holdfast.{folder.replace('/', '.')}"
    ]
    return sorted(problems)
