"""How launchers, shells and schedulers word that a signal ended a process: patterns for the entries. Pure."""

_CORE = 128


def ended_by(number: int, name: str, words: str) -> tuple[str, ...]:
    """Return patterns for the end by a signal, ``name`` as SIGBUS, ``words`` as the C library has them."""
    status = rf"(?:-{number}|{_CORE + number})"
    return (
        rf"exits with return code = -{number}\b|exitcode ?: -{number}\b|zero exit code but got -{number}\b",
        rf"exited on signal {number}\b",
        rf"KILLED BY SIGNAL: {number}\b|^= +EXIT CODE: (?:{number}|{_CORE + number})\b",
        rf"EXIT STRING: {words}\b",
        rf"(?:killed by|died (?:from|with)|terminated (?:with|by)) signal:? {number}\b",
        rf"(?:terminated (?:with|by)|received|killed by) signal {name}\b",
        rf"died with <Signals\.{name}: {number}>",
        rf"^\*\*\* Received signal {number} \*\*\*",
        rf"Signal {number} \({name}\) received|Signal: {words}(?:: {number})? \({number}\)",
        rf"[Cc]aught signal {number} \({words}",
        rf"Program received signal {name}\b|Caught signal number {number}\b",
        rf"^{words}(?:: {number})?(?: \(core dumped\))?$|: line \d+: +\d+ {words}\b",
        rf"(?:Fatal Python error|Caught error): {words}",
        rf"[Ee]xit(?:ed)?(?: with)?(?: exit)? (?:code|status(?: code)?):? {status}\b",
    )
