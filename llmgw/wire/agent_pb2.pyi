from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InstallationState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INSTALLATION_STATE_UNSPECIFIED: _ClassVar[InstallationState]
    INSTALLATION_STATE_PENDING: _ClassVar[InstallationState]
    INSTALLATION_STATE_INSTALLING: _ClassVar[InstallationState]
    INSTALLATION_STATE_INSTALLED: _ClassVar[InstallationState]
    INSTALLATION_STATE_FAILED: _ClassVar[InstallationState]
    INSTALLATION_STATE_UNSUPPORTED: _ClassVar[InstallationState]

class ShardState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHARD_STATE_UNSPECIFIED: _ClassVar[ShardState]
    SHARD_STATE_PENDING: _ClassVar[ShardState]
    SHARD_STATE_STARTING: _ClassVar[ShardState]
    SHARD_STATE_LOADING: _ClassVar[ShardState]
    SHARD_STATE_READY: _ClassVar[ShardState]
    SHARD_STATE_DRAINING: _ClassVar[ShardState]
    SHARD_STATE_STOPPED: _ClassVar[ShardState]
    SHARD_STATE_FAILED: _ClassVar[ShardState]
INSTALLATION_STATE_UNSPECIFIED: InstallationState
INSTALLATION_STATE_PENDING: InstallationState
INSTALLATION_STATE_INSTALLING: InstallationState
INSTALLATION_STATE_INSTALLED: InstallationState
INSTALLATION_STATE_FAILED: InstallationState
INSTALLATION_STATE_UNSUPPORTED: InstallationState
SHARD_STATE_UNSPECIFIED: ShardState
SHARD_STATE_PENDING: ShardState
SHARD_STATE_STARTING: ShardState
SHARD_STATE_LOADING: ShardState
SHARD_STATE_READY: ShardState
SHARD_STATE_DRAINING: ShardState
SHARD_STATE_STOPPED: ShardState
SHARD_STATE_FAILED: ShardState

class Up(_message.Message):
    __slots__ = ("term", "register", "heartbeat", "shard_status", "command_result", "logs_reply")
    TERM_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SHARD_STATUS_FIELD_NUMBER: _ClassVar[int]
    COMMAND_RESULT_FIELD_NUMBER: _ClassVar[int]
    LOGS_REPLY_FIELD_NUMBER: _ClassVar[int]
    term: int
    register: Register
    heartbeat: AgentHeartbeat
    shard_status: ShardStatus
    command_result: CommandResult
    logs_reply: LogsReply
    def __init__(self, term: _Optional[int] = ..., register: _Optional[_Union[Register, _Mapping]] = ..., heartbeat: _Optional[_Union[AgentHeartbeat, _Mapping]] = ..., shard_status: _Optional[_Union[ShardStatus, _Mapping]] = ..., command_result: _Optional[_Union[CommandResult, _Mapping]] = ..., logs_reply: _Optional[_Union[LogsReply, _Mapping]] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ("node_id", "facts", "shards", "quarantined")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    facts: NodeFacts
    shards: _containers.RepeatedCompositeFieldContainer[ShardReport]
    quarantined: _containers.RepeatedCompositeFieldContainer[Quarantined]
    def __init__(self, node_id: _Optional[str] = ..., facts: _Optional[_Union[NodeFacts, _Mapping]] = ..., shards: _Optional[_Iterable[_Union[ShardReport, _Mapping]]] = ..., quarantined: _Optional[_Iterable[_Union[Quarantined, _Mapping]]] = ...) -> None: ...

class NodeFacts(_message.Message):
    __slots__ = ("hostname", "management_address", "management_interface", "agent_version", "labels", "pool", "cpus", "memory_total_bytes", "gpus", "hcas", "storage", "weights", "engines", "problems", "boot_id")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    MANAGEMENT_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MANAGEMENT_INTERFACE_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    HCAS_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    hostname: str
    management_address: str
    management_interface: str
    agent_version: str
    labels: _containers.ScalarMap[str, str]
    pool: str
    cpus: int
    memory_total_bytes: int
    gpus: _containers.RepeatedCompositeFieldContainer[Gpu]
    hcas: _containers.RepeatedCompositeFieldContainer[Hca]
    storage: _containers.RepeatedCompositeFieldContainer[Storage]
    weights: _containers.RepeatedCompositeFieldContainer[Weights]
    engines: _containers.RepeatedCompositeFieldContainer[EngineInstallation]
    problems: _containers.RepeatedScalarFieldContainer[str]
    boot_id: str
    def __init__(self, hostname: _Optional[str] = ..., management_address: _Optional[str] = ..., management_interface: _Optional[str] = ..., agent_version: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., pool: _Optional[str] = ..., cpus: _Optional[int] = ..., memory_total_bytes: _Optional[int] = ..., gpus: _Optional[_Iterable[_Union[Gpu, _Mapping]]] = ..., hcas: _Optional[_Iterable[_Union[Hca, _Mapping]]] = ..., storage: _Optional[_Iterable[_Union[Storage, _Mapping]]] = ..., weights: _Optional[_Iterable[_Union[Weights, _Mapping]]] = ..., engines: _Optional[_Iterable[_Union[EngineInstallation, _Mapping]]] = ..., problems: _Optional[_Iterable[str]] = ..., boot_id: _Optional[str] = ...) -> None: ...

class Gpu(_message.Message):
    __slots__ = ("index", "uuid", "name", "memory_total_bytes", "memory_used_bytes", "compute_capability", "numa_node", "pci_bus_id", "driver_version", "cuda_version", "nvlink_peers", "ecc_errors_uncorrected", "temperature_celsius", "problems", "process_ids")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    NUMA_NODE_FIELD_NUMBER: _ClassVar[int]
    PCI_BUS_ID_FIELD_NUMBER: _ClassVar[int]
    DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    CUDA_VERSION_FIELD_NUMBER: _ClassVar[int]
    NVLINK_PEERS_FIELD_NUMBER: _ClassVar[int]
    ECC_ERRORS_UNCORRECTED_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_CELSIUS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_IDS_FIELD_NUMBER: _ClassVar[int]
    index: int
    uuid: str
    name: str
    memory_total_bytes: int
    memory_used_bytes: int
    compute_capability: str
    numa_node: int
    pci_bus_id: str
    driver_version: str
    cuda_version: str
    nvlink_peers: _containers.RepeatedScalarFieldContainer[str]
    ecc_errors_uncorrected: int
    temperature_celsius: int
    problems: _containers.RepeatedScalarFieldContainer[str]
    process_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, index: _Optional[int] = ..., uuid: _Optional[str] = ..., name: _Optional[str] = ..., memory_total_bytes: _Optional[int] = ..., memory_used_bytes: _Optional[int] = ..., compute_capability: _Optional[str] = ..., numa_node: _Optional[int] = ..., pci_bus_id: _Optional[str] = ..., driver_version: _Optional[str] = ..., cuda_version: _Optional[str] = ..., nvlink_peers: _Optional[_Iterable[str]] = ..., ecc_errors_uncorrected: _Optional[int] = ..., temperature_celsius: _Optional[int] = ..., problems: _Optional[_Iterable[str]] = ..., process_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Hca(_message.Message):
    __slots__ = ("name", "fabric", "rate_gbps", "numa_node", "state")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FABRIC_FIELD_NUMBER: _ClassVar[int]
    RATE_GBPS_FIELD_NUMBER: _ClassVar[int]
    NUMA_NODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    fabric: str
    rate_gbps: float
    numa_node: int
    state: str
    def __init__(self, name: _Optional[str] = ..., fabric: _Optional[str] = ..., rate_gbps: _Optional[float] = ..., numa_node: _Optional[int] = ..., state: _Optional[str] = ...) -> None: ...

class Storage(_message.Message):
    __slots__ = ("path", "free_bytes", "total_bytes", "shared")
    PATH_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    path: str
    free_bytes: int
    total_bytes: int
    shared: bool
    def __init__(self, path: _Optional[str] = ..., free_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., shared: bool = ...) -> None: ...

class Weights(_message.Message):
    __slots__ = ("path", "size_bytes", "shared")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    path: str
    size_bytes: int
    shared: bool
    def __init__(self, path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., shared: bool = ...) -> None: ...

class EngineInstallation(_message.Message):
    __slots__ = ("engine", "version", "variant", "state", "detail")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VARIANT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    engine: str
    version: str
    variant: str
    state: InstallationState
    detail: str
    def __init__(self, engine: _Optional[str] = ..., version: _Optional[str] = ..., variant: _Optional[str] = ..., state: _Optional[_Union[InstallationState, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class Profile(_message.Message):
    __slots__ = ("name", "engine", "engine_version", "gpu_class", "tp", "pp", "gpus_per_node", "nodes", "memory_mb", "fabric", "labels", "args", "env", "startup_timeout_s", "model_path", "source", "served_model_name")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_VERSION_FIELD_NUMBER: _ClassVar[int]
    GPU_CLASS_FIELD_NUMBER: _ClassVar[int]
    TP_FIELD_NUMBER: _ClassVar[int]
    PP_FIELD_NUMBER: _ClassVar[int]
    GPUS_PER_NODE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    FABRIC_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    STARTUP_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    MODEL_PATH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SERVED_MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    engine: str
    engine_version: str
    gpu_class: str
    tp: int
    pp: int
    gpus_per_node: int
    nodes: int
    memory_mb: int
    fabric: str
    labels: _containers.ScalarMap[str, str]
    args: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    startup_timeout_s: float
    model_path: str
    source: Source
    served_model_name: str
    def __init__(self, name: _Optional[str] = ..., engine: _Optional[str] = ..., engine_version: _Optional[str] = ..., gpu_class: _Optional[str] = ..., tp: _Optional[int] = ..., pp: _Optional[int] = ..., gpus_per_node: _Optional[int] = ..., nodes: _Optional[int] = ..., memory_mb: _Optional[int] = ..., fabric: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., args: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., startup_timeout_s: _Optional[float] = ..., model_path: _Optional[str] = ..., source: _Optional[_Union[Source, _Mapping]] = ..., served_model_name: _Optional[str] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("uri", "sha256")
    class Sha256Entry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    URI_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    uri: str
    sha256: _containers.ScalarMap[str, str]
    def __init__(self, uri: _Optional[str] = ..., sha256: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ShardSpec(_message.Message):
    __slots__ = ("replica_id", "shard_id", "rank", "rank0_address", "rank0_port", "http_port", "gpu_uuids", "hcas", "pool", "fabric", "model", "profile", "spec_hash", "profile_priority")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    RANK0_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RANK0_PORT_FIELD_NUMBER: _ClassVar[int]
    HTTP_PORT_FIELD_NUMBER: _ClassVar[int]
    GPU_UUIDS_FIELD_NUMBER: _ClassVar[int]
    HCAS_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    FABRIC_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    SPEC_HASH_FIELD_NUMBER: _ClassVar[int]
    PROFILE_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    shard_id: str
    rank: int
    rank0_address: str
    rank0_port: int
    http_port: int
    gpu_uuids: _containers.RepeatedScalarFieldContainer[str]
    hcas: _containers.RepeatedScalarFieldContainer[str]
    pool: str
    fabric: str
    model: str
    profile: Profile
    spec_hash: str
    profile_priority: int
    def __init__(self, replica_id: _Optional[str] = ..., shard_id: _Optional[str] = ..., rank: _Optional[int] = ..., rank0_address: _Optional[str] = ..., rank0_port: _Optional[int] = ..., http_port: _Optional[int] = ..., gpu_uuids: _Optional[_Iterable[str]] = ..., hcas: _Optional[_Iterable[str]] = ..., pool: _Optional[str] = ..., fabric: _Optional[str] = ..., model: _Optional[str] = ..., profile: _Optional[_Union[Profile, _Mapping]] = ..., spec_hash: _Optional[str] = ..., profile_priority: _Optional[int] = ...) -> None: ...

class ShardReport(_message.Message):
    __slots__ = ("spec", "state", "pid", "process_group", "process_start_ticks", "reason", "ready_for_s", "exit_code", "last_output")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_GROUP_FIELD_NUMBER: _ClassVar[int]
    PROCESS_START_TICKS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    READY_FOR_S_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    LAST_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    spec: ShardSpec
    state: ShardState
    pid: int
    process_group: int
    process_start_ticks: int
    reason: str
    ready_for_s: float
    exit_code: int
    last_output: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, spec: _Optional[_Union[ShardSpec, _Mapping]] = ..., state: _Optional[_Union[ShardState, str]] = ..., pid: _Optional[int] = ..., process_group: _Optional[int] = ..., process_start_ticks: _Optional[int] = ..., reason: _Optional[str] = ..., ready_for_s: _Optional[float] = ..., exit_code: _Optional[int] = ..., last_output: _Optional[_Iterable[str]] = ...) -> None: ...

class Quarantined(_message.Message):
    __slots__ = ("launch_token", "pids", "reason")
    LAUNCH_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    launch_token: str
    pids: _containers.RepeatedScalarFieldContainer[int]
    reason: str
    def __init__(self, launch_token: _Optional[str] = ..., pids: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ...) -> None: ...

class AgentHeartbeat(_message.Message):
    __slots__ = ("loop_tick", "load", "shard_loads", "problems_changed", "problems", "gpus_changed", "gpus", "storage_changed", "storage", "weights_changed", "weights", "engines_changed", "engines", "memory_total_bytes")
    LOOP_TICK_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    SHARD_LOADS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    GPUS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    STORAGE_CHANGED_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    ENGINES_CHANGED_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    loop_tick: int
    load: NodeLoad
    shard_loads: _containers.RepeatedCompositeFieldContainer[ShardLoad]
    problems_changed: bool
    problems: _containers.RepeatedScalarFieldContainer[str]
    gpus_changed: bool
    gpus: _containers.RepeatedCompositeFieldContainer[Gpu]
    storage_changed: bool
    storage: _containers.RepeatedCompositeFieldContainer[Storage]
    weights_changed: bool
    weights: _containers.RepeatedCompositeFieldContainer[Weights]
    engines_changed: bool
    engines: _containers.RepeatedCompositeFieldContainer[EngineInstallation]
    memory_total_bytes: int
    def __init__(self, loop_tick: _Optional[int] = ..., load: _Optional[_Union[NodeLoad, _Mapping]] = ..., shard_loads: _Optional[_Iterable[_Union[ShardLoad, _Mapping]]] = ..., problems_changed: bool = ..., problems: _Optional[_Iterable[str]] = ..., gpus_changed: bool = ..., gpus: _Optional[_Iterable[_Union[Gpu, _Mapping]]] = ..., storage_changed: bool = ..., storage: _Optional[_Iterable[_Union[Storage, _Mapping]]] = ..., weights_changed: bool = ..., weights: _Optional[_Iterable[_Union[Weights, _Mapping]]] = ..., engines_changed: bool = ..., engines: _Optional[_Iterable[_Union[EngineInstallation, _Mapping]]] = ..., memory_total_bytes: _Optional[int] = ...) -> None: ...

class NodeLoad(_message.Message):
    __slots__ = ("cpu_percent", "load_1m", "load_5m", "load_15m", "memory_used_bytes", "memory_available_bytes")
    CPU_PERCENT_FIELD_NUMBER: _ClassVar[int]
    LOAD_1M_FIELD_NUMBER: _ClassVar[int]
    LOAD_5M_FIELD_NUMBER: _ClassVar[int]
    LOAD_15M_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_AVAILABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    cpu_percent: float
    load_1m: float
    load_5m: float
    load_15m: float
    memory_used_bytes: int
    memory_available_bytes: int
    def __init__(self, cpu_percent: _Optional[float] = ..., load_1m: _Optional[float] = ..., load_5m: _Optional[float] = ..., load_15m: _Optional[float] = ..., memory_used_bytes: _Optional[int] = ..., memory_available_bytes: _Optional[int] = ...) -> None: ...

class ShardLoad(_message.Message):
    __slots__ = ("shard_id", "cpu_cores", "memory_bytes")
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    CPU_CORES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    shard_id: str
    cpu_cores: float
    memory_bytes: int
    def __init__(self, shard_id: _Optional[str] = ..., cpu_cores: _Optional[float] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class FetchProgress(_message.Message):
    __slots__ = ("source", "bytes_done", "bytes_total")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BYTES_DONE_FIELD_NUMBER: _ClassVar[int]
    BYTES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    source: str
    bytes_done: int
    bytes_total: int
    def __init__(self, source: _Optional[str] = ..., bytes_done: _Optional[int] = ..., bytes_total: _Optional[int] = ...) -> None: ...

class ShardStatus(_message.Message):
    __slots__ = ("shard", "fetch")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    shard: ShardReport
    fetch: FetchProgress
    def __init__(self, shard: _Optional[_Union[ShardReport, _Mapping]] = ..., fetch: _Optional[_Union[FetchProgress, _Mapping]] = ...) -> None: ...

class CommandResult(_message.Message):
    __slots__ = ("message_id", "accepted", "reason", "stale_term", "highest_term")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STALE_TERM_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_TERM_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    accepted: bool
    reason: str
    stale_term: bool
    highest_term: int
    def __init__(self, message_id: _Optional[str] = ..., accepted: bool = ..., reason: _Optional[str] = ..., stale_term: bool = ..., highest_term: _Optional[int] = ...) -> None: ...

class LogsReply(_message.Message):
    __slots__ = ("message_id", "source", "lines", "sources", "error")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    source: str
    lines: _containers.RepeatedScalarFieldContainer[str]
    sources: _containers.RepeatedScalarFieldContainer[str]
    error: str
    def __init__(self, message_id: _Optional[str] = ..., source: _Optional[str] = ..., lines: _Optional[_Iterable[str]] = ..., sources: _Optional[_Iterable[str]] = ..., error: _Optional[str] = ...) -> None: ...

class Down(_message.Message):
    __slots__ = ("term", "message_id", "ack", "provision", "start_shard", "stop_shard", "drain_shard", "remove_weights", "logs_request", "heartbeat")
    TERM_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    PROVISION_FIELD_NUMBER: _ClassVar[int]
    START_SHARD_FIELD_NUMBER: _ClassVar[int]
    STOP_SHARD_FIELD_NUMBER: _ClassVar[int]
    DRAIN_SHARD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    LOGS_REQUEST_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    term: int
    message_id: str
    ack: Ack
    provision: Provision
    start_shard: StartShard
    stop_shard: StopShard
    drain_shard: DrainShard
    remove_weights: RemoveWeights
    logs_request: LogsRequest
    heartbeat: LeaderHeartbeat
    def __init__(self, term: _Optional[int] = ..., message_id: _Optional[str] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., provision: _Optional[_Union[Provision, _Mapping]] = ..., start_shard: _Optional[_Union[StartShard, _Mapping]] = ..., stop_shard: _Optional[_Union[StopShard, _Mapping]] = ..., drain_shard: _Optional[_Union[DrainShard, _Mapping]] = ..., remove_weights: _Optional[_Union[RemoveWeights, _Mapping]] = ..., logs_request: _Optional[_Union[LogsRequest, _Mapping]] = ..., heartbeat: _Optional[_Union[LeaderHeartbeat, _Mapping]] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("heartbeat_interval_s",)
    HEARTBEAT_INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    heartbeat_interval_s: float
    def __init__(self, heartbeat_interval_s: _Optional[float] = ...) -> None: ...

class Provision(_message.Message):
    __slots__ = ("engines",)
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    engines: _containers.RepeatedCompositeFieldContainer[WantedEngine]
    def __init__(self, engines: _Optional[_Iterable[_Union[WantedEngine, _Mapping]]] = ...) -> None: ...

class WantedEngine(_message.Message):
    __slots__ = ("engine", "version")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    engine: str
    version: str
    def __init__(self, engine: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class StartShard(_message.Message):
    __slots__ = ("spec", "reason")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    spec: ShardSpec
    reason: str
    def __init__(self, spec: _Optional[_Union[ShardSpec, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class StopShard(_message.Message):
    __slots__ = ("replica_id", "shard_id", "reason")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    shard_id: str
    reason: str
    def __init__(self, replica_id: _Optional[str] = ..., shard_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DrainShard(_message.Message):
    __slots__ = ("replica_id", "shard_id", "reason")
    REPLICA_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    replica_id: str
    shard_id: str
    reason: str
    def __init__(self, replica_id: _Optional[str] = ..., shard_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RemoveWeights(_message.Message):
    __slots__ = ("paths", "reason")
    PATHS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, paths: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class LogsRequest(_message.Message):
    __slots__ = ("source", "lines")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    source: str
    lines: int
    def __init__(self, source: _Optional[str] = ..., lines: _Optional[int] = ...) -> None: ...

class LeaderHeartbeat(_message.Message):
    __slots__ = ("loop_tick", "frozen")
    LOOP_TICK_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    loop_tick: int
    frozen: bool
    def __init__(self, loop_tick: _Optional[int] = ..., frozen: bool = ...) -> None: ...
