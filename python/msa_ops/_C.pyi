class CudaDevice:
    ordinal: int
    name: str
    major: int
    minor: int
    multiprocessors: int
    shared_memory_per_block_optin: int

class CudaDriver:
    version: int
    error: str
    devices: list[CudaDevice]

def query_cuda_driver() -> CudaDriver: ...
