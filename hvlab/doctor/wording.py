"""Put what glibc, bash, make, gcc and ld print in other languages into English, which the patterns know."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

# By the English message; # stands for a number or a name.
_TRANSLATIONS = {
    "No such file or directory": (
        "Datei oder Verzeichnis nicht gefunden|Aucun fichier ou dossier de ce type|"
        "No existe el fichero o el directorio|File o directory non esistente|"
        "Arquivo ou diretório inexistente|没有那个文件或目录|沒有此一檔案或目錄|"
        "Нет такого файла или каталога|そのようなファイルやディレクトリはありません|"
        "그런 파일이나 디렉터리가 없습니다|Nie ma takiego pliku ani katalogu|"
        "No existe el archivo o el directorio|Arquivo ou diretório não encontrado"
    ),
    "Permission denied": (
        "Keine Berechtigung|Permission non accordée|Permiso denegado|Permesso negato|"
        "Permissão negada|权限不够|拒絕不符權限的操作|Отказано в доступе|許可がありません|허가 거부|"
        "Brak dostępu"
    ),
    "Operation not permitted": (
        "Die Operation ist nicht erlaubt|Opération non permise|Operación no permitida|"
        "Operazione non permessa|Operação não permitida|不允许的操作|此項操作並不被允許|"
        "Операция не позволена|許可されていない操作です|명령을 허용하지 않음|Operacja niedozwolona"
    ),
    "No space left on device": (
        "Auf dem Gerät ist kein Speicherplatz mehr verfügbar|"
        "Aucun espace disponible sur le périphérique|No queda espacio en el dispositivo|"
        "Spazio esaurito sul device|Não há espaço disponível no dispositivo|设备上没有空间|"
        "裝置上已無多餘空間|На устройстве не осталось свободного места|"
        "デバイスに空き領域がありません|장치에 남은 공간이 없음|Brak miejsca na urządzeniu"
    ),
    "Disk quota exceeded": (
        "Der zugewiesene Plattenplatz (Quota) ist überschritten|Débordement du quota d'espace disque|"
        "Se ha excedido la cuota de disco|Quota disco superata|Cota da disco excedida|超出磁盘限额|"
        "磁碟配額已滿|Превышена дисковая квота|ディスク使用量制限を超過しました|"
        "디스크 할당량이 초과됨|Przekroczony limit dyskowy"
    ),
    "Cannot allocate memory": (
        "Nicht genügend Hauptspeicher verfügbar|Ne peut allouer de la mémoire|"
        "No se pudo asignar memoria|Impossibile allocare memoria|Não foi possível alocar memória|"
        "无法分配内存|無法配置記憶體|Невозможно выделить память|メモリを確保できません|"
        "메모리를 할당할 수 없습니다|Nie można przydzielić pamięci|"
        "Kann nicht genügend Speicher zuordnen|Impossible d'allouer de la mémoire|"
        "Es konnte kein Speicher reserviert werden"
    ),
    "Resource temporarily unavailable": (
        "Die Ressource ist zur Zeit nicht verfügbar|Ressource temporairement non disponible|"
        "Recurso no disponible temporalmente|Risorsa temporaneamente non disponibile|"
        "Recurso temporariamente indisponível|资源暂时不可用|資源暫時無法取得|"
        "Ресурс временно недоступен|リソースが一時的に利用できません|자원이 일시적으로 사용 불가능함|"
        "Zasoby chwilowo niedostępne|Die Ressource ist vorübergehend nicht verfügbar"
    ),
    "Connection refused": (
        "Verbindungsaufbau abgelehnt|Connexion refusée|Conexión rehusada|Connessione rifiutata|"
        "Conexão recusada|拒绝连接|連線被拒絕|В соединении отказано|接続を拒否されました|"
        "연결이 거부됨|Połączenie odrzucone"
    ),
    "Connection timed out": (
        "Die Wartezeit für die Verbindung ist abgelaufen|"
        "Connexion terminée par expiration du délai d'attente|Expiró el tiempo de conexión|"
        "Connessione scaduta|Tempo esgotado para conexão|连接超时|連線超過時間|"
        "Время ожидания соединения истекло|接続がタイムアウトしました|연결 시간 초과|"
        "Przekroczony czas oczekiwania na połączenie"
    ),
    "Connection reset by peer": (
        "Die Verbindung wurde vom Kommunikationspartner zurückgesetzt|"
        "Connexion ré-initialisée par le correspondant|Conexión reinicializada por la máquina remota|"
        "Connessione interrotta dal corrispondente|Conexão fechada pela outra ponta|连接被对方重设|"
        "連線被對方重設|Соединение разорвано другой стороной|接続が相手からリセットされました|"
        "상대편이 연결을 끊음|Połączenie zerwane przez drugą stronę"
    ),
    "No route to host": (
        "Keine Route zum Zielrechner|Aucun chemin d'accès pour atteindre l'hôte cible|"
        "No existe ninguna ruta hasta el `host'|Nessun instradamento per l'host|"
        "Não há rota para o host|没有到主机的路由|找不到通往該主機的路由路徑|Нет маршрута до узла|"
        "ホストへの経路がありません|호스트로 갈 루트가 없음|Brak trasy do hosta"
    ),
    "Network is unreachable": (
        "Das Netzwerk ist nicht erreichbar|Le réseau n'est pas accessible|La red es inaccesible|"
        "La rete non è raggiungibile|A rede está fora de alcance|网络不可达|無法接觸網路|"
        "Сеть недоступна|ネットワークに届きません|네트워크가 접근 불가능합니다|Sieć jest niedostępna"
    ),
    "Name or service not known": (
        "Der Name oder der Dienst ist nicht bekannt|Nom ou service inconnu|"
        "Nombre o servicio desconocido|Nome o servizio sconosciuto|Nome ou serviço desconhecido|"
        "未知的名称或服务|名稱或服務未知|Неизвестное имя или служба|名前またはサービスが不明です|"
        "이름 혹은 서비스를 알 수 없습니다|Ta nazwa lub usługa jest nieznana"
    ),
    "Temporary failure in name resolution": (
        "Temporärer Fehler bei der Namensauflösung|Échec temporaire dans la résolution du nom|"
        "Fallo temporal en la resolución del nombre|Errore temporaneo nella risoluzione del nome|"
        "Falha temporário na resolução de nome|域名解析暂时失败|解析名稱時發生暫時性錯誤|"
        "Временный сбой в разрешении имен|名前解決に一時的に失敗しました|"
        "name resolution에서 일시적인 실패|Odwzorowanie nazwy jest chwilowo niemożliwe"
    ),
    "Segmentation fault": (
        "Speicherzugriffsfehler|Erreur de segmentation|Violación de segmento|Errore di segmentazione|"
        "Falha de segmentação|段错误|程式記憶體區段錯誤|Ошибка сегментирования|세그멘테이션 오류|"
        "Naruszenie ochrony pamięci"
    ),
    "Bus error": (
        "Bus-Zugriffsfehler|Erreur du bus|Error del bus|Errore di bus|Erro no barramento|总线错误|"
        "匯流排錯誤|Ошибка шины|バスエラー|버스 오류|Błąd szyny"
    ),
    "Illegal instruction": (
        "Ungültiger Maschinenbefehl|Instruction non permise|Instrucción ilegal|"
        "Istruzione non consentita|Instrução ilegal|非法指令|無效指令|Недопустимая инструкция|"
        "명령어가 잘못됨|Błędna instrukcja"
    ),
    "Floating point exception": (
        "Gleitkomma-Ausnahme|Exception en point flottant|Excepción de coma flotante|"
        "Eccezione in virgola mobile|Exceção de ponto flutuante|浮点数例外|浮點數例外|"
        "Исключение в операции с плавающей точкой|浮動小数点例外|부동 소수점 예외|"
        "Błąd w obliczeniach zmiennoprzecinkowych"
    ),
    "Stale file handle": (
        "Veraltete Dateizugriffsnummer (file handle)|Panne d'accès au fichier|"
        "`handle' de fichero en desuso|Manipulador de arquivo corrompido|过旧的文件控柄|"
        "過舊的檔案控柄|Устаревший дескриптор файла|끊어진 파일 핸들|Nieaktualny uchwyt pliku"
    ),
    "Input/output error": (
        "Eingabe-/Ausgabefehler|Erreur d'entrée/sortie|Error de entrada/salida|"
        "Errore di input/output|Erro de entrada/saída|输入/输出错误|輸入/輸出錯誤|"
        "Ошибка ввода/вывода|入力/出力エラーです|입력/출력 오류|Błąd wejścia/wyjścia"
    ),
    "Read-only file system": (
        "Das Dateisystem ist nur lesbar|Système de fichiers accessible en lecture seulement|"
        "Sistema de ficheros de sólo lectura|File system in sola lettura|"
        "Sistema de arquivos somente para leitura|只读文件系统|唯讀的檔案系統|"
        "Файловая система доступна только для чтения|読み込み専用ファイルシステムです|"
        "읽기전용 파일 시스템|System plików wyłącznie do odczytu"
    ),
    "Address already in use": (
        "Die Adresse wird bereits verwendet|Adresse déjà utilisée|La dirección ya se está usando|"
        "Indirizzo già in uso|Endereço já em uso|地址已在使用|位址已經有在使用|"
        "Адрес уже используется|アドレスは既に使用中です|주소가 이미 사용 중입니다|"
        "Adres jest już w użyciu"
    ),
    "Exec format error": (
        "Fehler im Format der Programmdatei|Erreur de format pour exec()|"
        "Formato de ejecutable incorrecto|Formato eseguibile non valido|Erro no formato exec|"
        "可执行文件格式错误|可執行檔格式錯誤|Ошибка формата выполняемого файла|実行形式エラー|"
        "Exec 형식 오류|Błędny format pliku wykonywalnego"
    ),
    "Too many open files": (
        "Zu viele offene Dateien|Trop de fichiers ouverts|Demasiados ficheros abiertos|"
        "Troppi file aperti|Muitos arquivos abertos|打开的文件过多|開啟太多檔案|"
        "Слишком много открытых файлов|ファイルを開きすぎです|열린 파일이 너무 많음|"
        "Za dużo otwartych plików"
    ),
    "cannot open shared object file": (
        "Kann die Shared-Object-Datei nicht öffnen|Ne peut ouvrir le fichier d'objet partagé|"
        "no se puede abrir el fichero del objeto compartido|"
        "impossibile aprire il file oggetto condiviso|não é possível abrir arquivo compartilhado|"
        "无法打开共享对象文件|無法開啟共用物件|невозможно открыть разделяемый объектный файл|"
        "共有オブジェクトファイルを開けません|동적 오브젝트 파일을 열 수 없습니다|"
        "nie można otworzyć pliku obiektu dzielonego|impossible d'ouvrir le fichier d'objet partagé|"
        "no se puede abrir el archivo del objeto compartido|无法打开共享目标文件"
    ),
    "error while loading shared libraries": (
        "Fehler beim Laden der Shared Libraries|erreur lors du chargement des librairies partagées|"
        "error al cargar las bibliotecas compartidas|"
        "errore durante il caricamento delle librerie condivise|"
        "erro ao carregar bibliotecas compartilhadas|载入共享库时出错|載入共用函式庫時發生錯誤|"
        "ошибка при загрузке разделяемых библиотек|共有ライブラリのロード中にエラーが発生しました|"
        "동적 라이브러리를 읽어들이는데 오류가 발생했습니다|"
        "błąd podczas wczytywania bibliotek dzielonych|"
        "Fehler beim Laden gemeinsam genutzter Bibliotheken|"
        "erreur lors du chargement des bibliothèques partagées|加载共享库时出错"
    ),
    "symbol lookup error": (
        "Fehler beim Nachschlagen des Symbols|erreur de recherche de symbole|"
        "error de búsqueda de símbolo|errore nella ricerca del simbolo|erro de procura por símbolo|"
        "符号查询错误|符號查找錯誤|ошибка поиска символа|シンボル検索エラーです|심볼 찾기 오류|"
        "błąd wyszukiwania symbolu"
    ),
    "command not found": (
        "Kommando nicht gefunden|Befehl nicht gefunden|commande introuvable|orden no encontrada|"
        "comando non trovato|comando não encontrado|未找到命令|命令未找到|找不到命令|指令找不到|"
        "команда не найдена|コマンドが見つかりません|명령어를 찾을 수 없음|nie znaleziono polecenia"
    ),
    "bad interpreter": (
        "Defekter Interpreter|mauvais interpréteur|intérprete erróneo|interprete errato|"
        "interpretador incorreto|错误的解释器|解释器错误|不當的直譯器|неверный интерпретатор|"
        "誤ったインタプリタです|잘못된 인터프리터|zły interpreter"
    ),
    "(core dumped)": (
        "(Speicherabzug geschrieben)|(Speicherauszug erstellt)|(core dump créé)|(`core' generado)|"
        "(core dump creato)|(creato dump del core)|(imagem do núcleo gravada)|(arquivo core criado)|"
        "（核心已转储）|(核心已转储)|(核心已傾印)|(已傾印核心)|(образ памяти сброшен на диск)|"
        "(стек памяти сброшен на диск)|(сделан дамп памяти)|(コアダンプ)|(コアダンプしました)|"
        "(코어 덤프됨)|(zrzut pamięci)"
    ),
    "Aborted (": (
        "Abgebrochen (|Abandon (|Abortado (|Annullato (|已放弃 (|已放弃（|已中止 (|已中止（|中止 (|"
        "Аварийный останов (|중지됨 (|Przerwane ("
    ),
    "line #: ": (
        "Zeile #: |ligne # : |línea #: |riga #: |linha #: |第 # 行：|行 #: |строка #: |# 行: |줄 #: |"
        "linia #: "
    ),
    "Killed": (
        "Getötet|Processus arrêté|Terminado (killed)|已杀死|强制结束|强行终止|Убито|強制終了|죽었음|"
        "Unicestwiony"
    ),
    "] Error #": (
        "] Fehler #|] Erreur #|] Errore #|] Erro #|] 错误 #|] 錯誤 #|] Ошибка #|] エラー #|] 오류 #|"
        "] Błąd #|] Chyba #"
    ),
    "No targets specified and no makefile found": (
        "Es wurden keine Ziele angegeben und keine „make“-Steuerdatei gefunden|"
        "Pas de cible spécifiée et aucun makefile n'a été trouvé|"
        "No se especificó ningún objetivo y no se encontró ningún makefile|"
        "Nessun obiettivo specificato e nessun makefile trovato|没有指明目标并且找不到 makefile|"
        "沒有指明目標並且找不到 makefile|Не заданы цели и не найден make-файл|"
        "ターゲットが指定されておらず, makefile も見つかりません"
    ),
    "No rule to make target '#'": (
        "Keine Regel, um „#“ zu erstellen|Keine Regel vorhanden, um das Ziel „#“|"
        "Aucune règle pour fabriquer la cible « # »|Pas de règle pour fabriquer la cible « # »|"
        "No hay ninguna regla para construir el objetivo '#'|"
        "Nessuna regola per generare l'obiettivo «#»|Sem regra para processar o alvo '#'|"
        "没有规则可制作目标“#”|沒有規則可製作目標「#」|Нет правила для сборки цели «#»|"
        "ターゲット '#' を make するルールがありません"
    ),
    "fatal error: ": (
        "schwerwiegender Fehler: |erreur fatale: |erreur fatale : |error fatal: |致命错误：|"
        "致命错误: |嚴重錯誤：|фатальная ошибка: |致命的エラー: "
    ),
    ": error: ": (
        ": Fehler: |: erreur: |: erreur : |: 错误：|: 错误: |：错误：|: 錯誤：|: ошибка: |: エラー: "
    ),
    "ld returned # exit status": (
        "ld gab # als Ende-Status zurück|ld a retourné # code d'état d'exécution|"
        "ld a retourné le statut de sortie #|ld devolvió el estado de salida #|"
        "ld ha restituito lo stato di uscita #|ld 返回 #|ld 回傳 #|"
        "выполнение ld завершилось с кодом возврата #|ld はステータス # で終了しました"
    ),
    "ld: cannot find #": (
        "ld : ne peut pas trouver #|ld : ne peut trouver #|ld: no se puede encontrar #|"
        "ld: impossibile trovare #|ld: não foi possível localizar #|ld: 找不到 #|"
        "ld: невозможно найти #|ld: # が見つかりません|ld: # kann nicht gefunden werden"
    ),
    "undefined reference to `#'": (
        "référence indéfinie vers « # »|référence indéfinie vers `#'|referencia a `#' sin definir|"
        "referência não definida para \"#\"|对'#'未定义的引用|未定义的引用: '#'|"
        "неопределённая ссылка на «#»|nicht definierter Verweis auf »#«|"
        "Nicht definierter Verweis auf »#«|Warnung: undefinierter Verweis auf „#“"
    ),
}
_ENGLISH = {foreign: english for english, those in _TRANSLATIONS.items() for foreign in those.split("|")}
# What French and Chinese have in place of a colon.
_COLON = r"(?P<colon>[ \u00a0]?[:\uff1a] ?)?"
_NAME = r"(?P<name>[^\s\x22'\u00bb]{1,200})"


def to_english(log: str) -> Callable[[str], str]:
    """Return what puts a line of this log into English, as far as these tools wrote it."""
    log = log.replace("\u00a0", " ")
    wide = "\n".join(line for line in log.splitlines() if not line.isascii())
    present = [each for each in _ENGLISH if _key(each) in (log if each.isascii() else wide)]
    # What ends with a colon goes first: it may be the colon of what follows.
    present.sort(key=lambda foreign: (not _ENGLISH[foreign].endswith(": "), -len(foreign)))
    pairs = [(re.compile(_pattern(foreign)), _ENGLISH[foreign]) for foreign in present]

    def translated(line: str) -> str:
        for pattern, english in pairs:
            line = pattern.sub(partial(_put, english), line)
        return line

    return translated if pairs else str


def _key(foreign: str) -> str:
    return max(foreign.split("#"), key=len)


def _pattern(foreign: str) -> str:
    return _COLON + re.escape(foreign).replace(r"\#", _NAME).replace(r"\ ", r"[ \u00a0]")


def _put(english: str, match: re.Match[str]) -> str:
    words = english.replace("#", match.groupdict().get("name", ""))
    return f": {words.removeprefix(': ')}" if match["colon"] else words
