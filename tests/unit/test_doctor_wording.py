"""Messages of the system in other languages show what the English ones do."""

import pytest

from hvlab.doctor.reading import diagnose
from hvlab.doctor.wording import to_english


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("bash: ./run.sh: Keine Berechtigung", "permission"),
        ("bash: ./run.sh: 权限不够", "permission"),
        ("tar: a.txt : Aucun espace disponible sur le périphérique", "disk-full"),
        ("tar: a.txt: デバイスに空き領域がありません", "disk-full"),
        ("./run.sh: línea 3: 4242 Violación de segmento (`core' generado) ./app", "rank-segfault"),
        ("./run.sh：第 3 行： 4242 段错误 （核心已转储） ./app", "rank-segfault"),
        ("Processus arrêté", "killed-137"),
        ("./run.sh: Zeile 3: 4242 Getötet ./app", "killed-137"),
        ("ssh: connect to host node2 port 22: Verbindungsaufbau abgelehnt", "ssh-refused"),
        ("ssh: connect to host node2 port 22: 没有到主机的路由", "host-unreachable"),
        ("ping: node2: Échec temporaire dans la résolution du nom", "name-not-resolved"),
        ("./app: 载入共享库时出错：libfoo.so.4：无法打开共享对象文件：没有那个文件或目录", "library-missing"),
        ("foo.c:3:10: 致命错误：mpi.h：没有那个文件或目录", "mpi-headers"),
        ("foo.c:3:10: schwerwiegender Fehler: mpi.h: Datei oder Verzeichnis nicht gefunden", "mpi-headers"),
        ("make: *** [Makefile:80：modules] 错误 2", "make-failed"),
        ("/usr/bin/ld: no se puede encontrar -lfoo", "link-failed"),
        ("foo.c:(.text+0x5)：对'foo_init'未定义的引用", "link-failed"),
        ("collect2: 错误：ld 返回 1", "link-failed"),
        ("bash: foo: команда не найдена", "command-missing"),
    ],
)
def test_other_languages(line, cause):
    assert diagnose([line]).causes[0].cause.id == cause


def test_colons_of_other_languages():
    assert to_english("a : Connexion refusée")("a : Connexion refusée") == "a: Connection refused"


def test_english_stays():
    line = "make: *** [Makefile:80: all] Error 2: Erro, Abandon"
    assert to_english(line)(line) == line
