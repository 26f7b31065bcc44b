"""qk_norm_rope_insert on Hopper: eight lanes take one head of one token, a warp the same head of four tokens.

A lane holds two runs of eight dimensions, 64 apart, so that a load takes 16 bytes and the eight lanes take a whole line
of 128. The first runs are rotated, all lanes at once; the other half of a pair is four lanes away. The sum of squares
needs three shuffles, the maximum of 16 dimensions that share an NVFP4 scale one.
As the tokens of a warp are fixed, so are its rows of the table of cosines and its slots, and all its lanes do the same
to a head of each kind, whatever the numbers of heads are. Consecutive tokens mostly have consecutive slots, so the
warp's stores to the cache are mostly side by side.

Every row is read once and written once; nothing passes from one row to another. What bounds a kernel like this is how
many loads are under way, so the next rows come by asynchronous copies into a ring of the warp in shared memory. A lane
reads there what it copied itself, so that no lane waits for another.
"""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float16, Float32, Int32, Int64, Uint8, Uint32
from cutlass.cute.runtime import make_fake_stream, make_ptr
from msa_ops.cute.common import async_copy, memory, scalar, shared_words, streaming
from msa_ops.cute.common import float_words as words
from msa_ops.cute.common.asm import asm, select
from msa_ops.cute.qk_norm_rope_insert.sm90_configs import (
    ALIGNED_TABLE,
    FAMILY,
    GEMMA,
    HEAD_DIM,
    RINGS_AT,
    ROTARY_DIM,
    SCALE_LAYOUTS,
    STORED,
    TOKENS,
    TOKENS_AT,
    WIDE_POSITIONS,
    WIDE_SLOTS,
    WIDE_WEIGHTS,
    Config,
    shared_memory,
)

RUN = 8
"""Dimensions that are side by side in a lane."""
FAR = 64
"""From a lane's first run to its second."""
HALF = ROTARY_DIM // 2
DTYPES = {"bfloat16": BFloat16, "float16": Float16, "float32": Float32}
FP32, BF16, FP16, FP8, NVFP4 = (STORED.index(name) for name in ("fp32", "bf16", "fp16", "fp8", "nvfp4"))
LINEAR, TOKEN_QUADS, _ = range(len(SCALE_LAYOUTS))
SCALE_FLOOR = 2.0**-9
Q, K, INDEX_Q, INDEX_K, V = range(5)
"""Kinds of rows; the first four have a norm weight."""


class QkNormRopeInsertSm90:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.size = 4 if config.dtype == "float32" else 2
        self.loads = 2 * RUN * self.size // 16  # of a lane's part of a head

    @cute.jit
    def __call__(
        self,
        qkv: cute.Pointer,
        q: cute.Pointer,
        index_q: cute.Pointer,
        kv_cache: cute.Pointer,
        index_cache: cute.Pointer,
        q_weight: cute.Pointer,
        k_weight: cute.Pointer,
        index_q_weight: cute.Pointer,
        index_k_weight: cute.Pointer,
        cos_sin_cache: cute.Pointer,
        positions: cute.Pointer,
        slot_mapping: cute.Pointer,
        k_scale: cute.Pointer,
        v_scale: cute.Pointer,
        index_k_scale: cute.Pointer,
        qkv_stride: Int64,
        kv_page_stride: Int64,
        index_page_stride: Int64,
        table_stride: Int64,
        capacity: Int64,
        tokens: Int32,
        table_rows: Int32,
        num_heads: Int32,
        num_kv_heads: Int32,
        num_index_heads: Int32,
        v_offset: Int32,
        k_scale_offset: Int32,
        v_scale_offset: Int32,
        head_stride: Int32,
        token_stride: Int32,
        scale_head_stride: Int32,
        q_format: Int32,
        kv_format: Int32,
        index_format: Int32,
        k_scale_layout: Int32,
        v_scale_layout: Int32,
        flags: Int32,
        eps: Float32,
        parts: Int32,
        stream: cuda.CUstream,
    ):
        self.kernel(
            qkv,
            q,
            index_q,
            kv_cache,
            index_cache,
            q_weight,
            k_weight,
            index_q_weight,
            index_k_weight,
            cos_sin_cache,
            positions,
            slot_mapping,
            k_scale,
            v_scale,
            index_k_scale,
            qkv_stride,
            kv_page_stride,
            index_page_stride,
            table_stride,
            capacity,
            tokens,
            table_rows,
            num_heads,
            num_kv_heads,
            num_index_heads,
            v_offset,
            k_scale_offset,
            v_scale_offset,
            head_stride,
            token_stride,
            scale_head_stride,
            q_format,
            kv_format,
            index_format,
            k_scale_layout,
            v_scale_layout,
            flags,
            eps,
            parts,
        ).launch(
            grid=((tokens + TOKENS - 1) // TOKENS, parts, 1),
            block=(32 * self.config.warps, 1, 1),
            smem=shared_memory(self.config),
            preferred_smem_carveout=100,
            min_blocks_per_mp=self.config.blocks,
            stream=stream,
            use_pdl=True,
        )

    @cute.kernel
    def kernel(
        self,
        qkv: cute.Pointer,
        q: cute.Pointer,
        index_q: cute.Pointer,
        kv_cache: cute.Pointer,
        index_cache: cute.Pointer,
        q_weight: cute.Pointer,
        k_weight: cute.Pointer,
        index_q_weight: cute.Pointer,
        index_k_weight: cute.Pointer,
        cos_sin_cache: cute.Pointer,
        positions: cute.Pointer,
        slot_mapping: cute.Pointer,
        k_scale: cute.Pointer,
        v_scale: cute.Pointer,
        index_k_scale: cute.Pointer,
        qkv_stride: Int64,
        kv_page_stride: Int64,
        index_page_stride: Int64,
        table_stride: Int64,
        capacity: Int64,
        tokens: Int32,
        table_rows: Int32,
        num_heads: Int32,
        num_kv_heads: Int32,
        num_index_heads: Int32,
        v_offset: Int32,
        k_scale_offset: Int32,
        v_scale_offset: Int32,
        head_stride: Int32,
        token_stride: Int32,
        scale_head_stride: Int32,
        q_format: Int32,
        kv_format: Int32,
        index_format: Int32,
        k_scale_layout: Int32,
        v_scale_layout: Int32,
        flags: Int32,
        eps: Float32,
        parts: Int32,
    ):
        config = self.config
        cute.arch.griddepcontrol_wait()
        cute.arch.griddepcontrol_launch_dependents()
        thread, _, _ = cute.arch.thread_idx()
        block, part, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // 32)
        lane = thread % 32
        place = lane % 8
        run = RUN * place  # the lane has dimensions run to run + 7 and run + 64 to run + 71
        token = block * TOKENS + lane // 8
        live = token < tokens
        token = cutlass.min(token, tokens - 1)

        # Rows of a token: q, k, v, index_q, index_k.
        k_row = num_heads
        v_row = k_row + num_kv_heads
        index_q_row = v_row + num_kv_heads
        index_k_row = index_q_row + num_index_heads
        rows = index_k_row + cutlass.min(num_index_heads, 1)
        step = parts * config.warps
        first = part * config.warps + warp
        source = qkv.toint() + (Int64(token) * qkv_stride + Int64(run)) * self.size
        shared = cute.arch.get_dyn_smem(Uint8, alignment=128).toint()
        ring = shared + RINGS_AT + warp * (config.stages * config.stage_bytes) + 16 * lane
        for i in cutlass.range_constexpr(config.stages - 1):
            self.bring(ring + i * config.stage_bytes, source, first + i * step, rows)
        for i in cutlass.range_constexpr(4 * HEAD_DIM // (32 * config.warps)):
            self.stage_weight(
                shared,
                thread + 32 * config.warps * i,
                q_weight.toint(),
                k_weight.toint(),
                index_q_weight.toint(),
                index_k_weight.toint(),
                num_index_heads,
                flags,
            )

        q_bytes = self.row_bytes(q_format)
        if thread < TOKENS:
            self.stage_token(
                shared + TOKENS_AT + 32 * thread,
                cutlass.min(block * TOKENS + thread, tokens - 1),
                index_q.toint(),
                kv_cache.toint(),
                index_cache.toint(),
                slot_mapping.toint(),
                kv_page_stride,
                index_page_stride,
                capacity,
                num_index_heads * q_bytes,
                flags,
            )
        own = shared + TOKENS_AT + 32 * (lane // 8)
        q_at = q.toint() + Int64(token) * Int64(num_heads * q_bytes) + Int64(run * q_bytes // HEAD_DIM)

        cos = cute.make_rmem_tensor(cute.make_layout((RUN,)), Float32)
        sin = cute.make_rmem_tensor(cute.make_layout((RUN,)), Float32)
        position = self.load_integer(positions.toint(), token, flags & WIDE_POSITIONS)
        position = cutlass.min(cutlass.max(position, Int64(0)), Int64(table_rows - 1))
        table = cos_sin_cache.toint() + (position * table_stride + Int64(run % HALF)) * 4
        if flags & ALIGNED_TABLE:
            for i in cutlass.range_constexpr(RUN // 4):
                four_cos = streaming.load_f32x4(table + Int64(16 * i))
                four_sin = streaming.load_f32x4(table + Int64(4 * HALF + 16 * i))
                for j in cutlass.range_constexpr(4):
                    cos[4 * i + j] = four_cos[j]
                    sin[4 * i + j] = four_sin[j]
        else:
            for i in cutlass.range_constexpr(RUN):
                cos[i] = streaming.load_f32(table + Int64(4 * i))
                sin[i] = streaming.load_f32(table + Int64(4 * HALF + 4 * i))
        if run < HALF:  # the first of a pair
            for i in cutlass.range_constexpr(RUN):
                sin[i] = -sin[i]
        cute.arch.barrier()

        x = cute.make_rmem_tensor(cute.make_layout((2 * RUN,)), Float32)
        row = first
        stage = Int32(0)
        while row < rows:
            async_copy.wait(config.stages - 2)
            self.unpack(ring + stage, x)
            # The stage of the last row becomes that of the row `stages` further on.
            freed = select(stage == 0, Int32((config.stages - 1) * config.stage_bytes), stage - config.stage_bytes)
            self.bring(ring + freed, source, row + (config.stages - 1) * step, rows)
            stage = select(stage == (config.stages - 1) * config.stage_bytes, Int32(0), stage + config.stage_bytes)

            # Where the row goes and in which format.
            kind = Int32(Q)
            stored = q_format
            target = q_at + Int64(row * q_bytes)
            scales = Int64(0)  # address of the page's scales of the head
            layout = Int32(LINEAR)
            divisor = Int64(0)  # address of the scale of all elements
            writes = live
            in_page = Int32(0)
            if row >= k_row:
                in_page = Int32(memory.load_shared_32(own + 24))
                exists = cutlass.Boolean(in_page >= 0) & live
                if row < index_q_row:
                    kind = Int32(K)
                    stored = kv_format
                    writes = exists
                    divisor = k_scale.toint()
                    layout = k_scale_layout
                    head = row - k_row
                    offset = head * head_stride
                    scale_offset = k_scale_offset + head * scale_head_stride
                    if row >= v_row:
                        kind = Int32(V)
                        divisor = v_scale.toint()
                        layout = v_scale_layout
                        head = row - v_row
                        offset = v_offset + head * head_stride
                        scale_offset = v_scale_offset + head * scale_head_stride
                    target = shared_words.load_shared_i64(own + 8)
                    scales = target + Int64(scale_offset)
                    target = target + Int64(
                        offset + in_page * token_stride + run * self.row_bytes(kv_format) // HEAD_DIM
                    )
                elif row < index_k_row:
                    kind = Int32(INDEX_Q)
                    target = shared_words.load_shared_i64(own)
                    target = target + Int64((row - index_q_row) * q_bytes + run * q_bytes // HEAD_DIM)
                else:
                    kind = Int32(INDEX_K)
                    stored = index_format
                    writes = exists
                    divisor = index_k_scale.toint()
                    target = shared_words.load_shared_i64(own + 16)
                    scales = target + Int64(HEAD_DIM * HEAD_DIM // 2)
                    target = target + Int64((in_page * HEAD_DIM + run) * self.row_bytes(index_format) // HEAD_DIM)

            if kind != V:
                self.norm_and_rotate(x, shared + kind * (4 * HEAD_DIM) + 16 * place, eps, cos, sin)
            self.store(x, stored, target, scales, layout, divisor, in_page, place, writes)
            row = row + step

    @cute.jit
    def bring(self, target: Int32, source: Int64, row: Int32, rows: Int32):
        """Starts the copy of the lane's part of a row; no row, no copy, but a group all the same."""
        if row < rows:
            address = source + Int64(row * (HEAD_DIM * self.size))
            for i in cutlass.range_constexpr(self.loads):
                # The second half of the loads are the second run.
                offset = i // (self.loads // 2) * (FAR * self.size) + i % (self.loads // 2) * 16
                async_copy.copy_16(target + 512 * i, address + Int64(offset))
        async_copy.commit()

    def unpack(self, stage, x):
        """The lane's part of a row as fp32."""
        for i in range(self.loads):
            found = memory.load_shared_128(stage + 512 * i)
            for j, word in enumerate(found):
                if self.config.dtype == "float32":
                    x[4 * i + j] = words.f32_to_f32(word)
                else:
                    convert = words.bf16x2_to_f32 if self.config.dtype == "bfloat16" else words.f16x2_to_f32
                    x[8 * i + 2 * j], x[8 * i + 2 * j + 1] = convert(word)

    @cute.jit
    def load_integer(self, address: Int64, index: Int32, wide: Int32) -> Int64:
        value = Int64(0)
        if wide != 0:
            value = streaming.load_i64(address + Int64(index) * 8)
        else:
            value = Int64(streaming.load_i32(address + Int64(index) * 4))
        return value

    @cute.jit
    def row_bytes(self, stored: Int32) -> Int32:
        """Bytes of 128 elements."""
        size = Int32(HEAD_DIM * 4)
        if stored > FP32:
            size = Int32(HEAD_DIM * 2)
        if stored > FP16:
            size = Int32(HEAD_DIM)
        if stored > FP8:
            size = Int32(HEAD_DIM // 2)
        return size

    @cute.jit
    def stage_token(
        self,
        entry: Int32,
        token: Int32,
        index_q: Int64,
        kv_cache: Int64,
        index_cache: Int64,
        slot_mapping: Int64,
        kv_page_stride: Int64,
        index_page_stride: Int64,
        capacity: Int64,
        index_q_stride: Int32,
        flags: Int32,
    ):
        """Addresses of the token's index_q, KV page and index page, and its place in the pages; -1 if it has none."""
        slot = self.load_integer(slot_mapping, token, flags & WIDE_SLOTS)
        exists = cutlass.Boolean(slot >= Int64(0)) & cutlass.Boolean(slot < capacity)
        page = slot >> Int64(7)
        shared_words.store_shared_i64x2(
            entry, index_q + Int64(token) * Int64(index_q_stride), kv_cache + page * kv_page_stride
        )
        in_page = select(exists, Int32(slot & Int64(127)), Int32(-1))
        shared_words.store_shared_i64x2(entry + 16, index_cache + page * index_page_stride, Int64(in_page))

    @cute.jit
    def stage_weight(
        self,
        shared: Int32,
        index: Int32,
        q_weight: Int64,
        k_weight: Int64,
        index_q_weight: Int64,
        index_k_weight: Int64,
        num_index_heads: Int32,
        flags: Int32,
    ):
        """One element of a norm weight, where its lane finds it: of four elements a lane, the lanes side by side."""
        kind = index // HEAD_DIM
        dim = index % HEAD_DIM
        source = q_weight
        if kind == K:
            source = k_weight
        if kind == INDEX_Q:
            source = index_q_weight
        if kind == INDEX_K:
            source = index_k_weight
        if (kind < INDEX_Q) | (num_index_heads > 0):
            weight = Float32(0.0)
            if flags & WIDE_WEIGHTS:
                weight = streaming.load_f32(source + Int64(4 * dim))
            elif cutlass.const_expr(self.config.dtype == "float16"):
                weight, _ = words.f16x2_to_f32(streaming.load_u16(source + Int64(2 * dim)))
            else:
                weight, _ = words.bf16x2_to_f32(streaming.load_u16(source + Int64(2 * dim)))
            if flags & GEMMA:
                weight = weight + Float32(1.0)
            place = dim // RUN % 8
            four = dim // FAR * 2 + dim % RUN // 4
            at = ((kind * 4 + four) * 8 + place) * 4 + dim % 4
            memory.store_shared_f32(shared + 4 * at, weight)

    @cute.jit
    def norm_and_rotate(self, x: cute.Tensor, weights: Int32, eps: Float32, cos: cute.Tensor, sin: cute.Tensor):
        """`weights`: address of the lane's first four weights of the kind."""
        sums = [words.mul(x[i], x[i]) for i in range(4)]
        for i in cutlass.range_constexpr(4, 2 * RUN):
            sums[i % 4] = words.fma(x[i], x[i], sums[i % 4])
        total = (sums[0] + sums[1]) + (sums[2] + sums[3])
        for i in cutlass.range_constexpr(3):
            total = total + cute.arch.shuffle_sync_bfly(total, offset=4 >> i)
        scale = asm("rsqrt.approx.f32 $0, $1;", [Float32], [total * Float32(1 / HEAD_DIM) + eps], pure=True)
        for i in cutlass.range_constexpr(RUN // 2):
            weight = memory.load_shared_f32x4(weights + 128 * i)
            for j in cutlass.range_constexpr(4):
                x[4 * i + j] = words.mul(words.mul(x[4 * i + j], scale), weight[j])
        for i in cutlass.range_constexpr(RUN):
            other = cute.arch.shuffle_sync_bfly(x[i], offset=HALF // RUN)
            x[i] = words.fma(x[i], cos[i], words.mul(other, sin[i]))

    @cute.jit
    def store(
        self,
        x: cute.Tensor,
        stored: Int32,
        target: Int64,
        scales: Int64,
        layout: Int32,
        divisor: Int64,
        in_page: Int32,
        place: Int32,
        writes: cutlass.Boolean,
    ):
        """Rounds the lane's elements to the format and writes them; `target` is the address of the first."""
        scale = Float32(1.0)
        if cutlass.const_expr(self.config.scaled):
            if divisor != Int64(0):
                scale = streaming.load_f32(divisor)
            if stored != NVFP4:
                for i in cutlass.range_constexpr(2 * RUN):
                    x[i] = scalar.div_rn(x[i], scale)
        if stored == NVFP4:
            self.store_nvfp4(x, target, scales, layout, scale, in_page, place, writes)
        elif stored == FP8:
            for i in cutlass.range_constexpr(2):
                pair = [words.f32_to_e4m3x4(*[x[RUN * i + 4 * j + k] for k in range(4)]) for j in range(2)]
                if writes:
                    streaming.store_64(target + Int64(FAR * i), pair)
        elif stored == FP32:
            for i in cutlass.range_constexpr(4):
                four = [words.bits_of(x[4 * i + j]) for j in range(4)]
                if writes:
                    streaming.store_128(target + Int64(4 * FAR * (i // 2) + 16 * (i % 2)), four)
        else:
            if cutlass.const_expr(self.config.dtype == "float16"):
                if stored == FP16:
                    self.store_halves(x, words.f32_to_f16x2, target, writes)
                else:
                    self.store_halves(x, words.f32_to_bf16x2, target, writes)
            else:
                self.store_halves(x, words.f32_to_bf16x2, target, writes)

    @cute.jit
    def store_halves(self, x: cute.Tensor, pack: cutlass.Constexpr, target: Int64, writes: cutlass.Boolean):
        for i in cutlass.range_constexpr(2):
            four = [pack(x[RUN * i + 2 * j], x[RUN * i + 2 * j + 1]) for j in range(4)]
            if writes:
                streaming.store_128(target + Int64(2 * FAR * i), four)

    @cute.jit
    def store_nvfp4(
        self,
        x: cute.Tensor,
        target: Int64,
        scales: Int64,
        layout: Int32,
        scale: Float32,
        in_page: Int32,
        place: Int32,
        writes: cutlass.Boolean,
    ):
        """A group of 16 belongs to two neighbouring lanes; the even one writes its scale byte."""
        # Byte of group g of the token: start + g % 4 * near + g // 4 * far.
        start = in_page * 8
        near = Int32(1)
        far = Int32(4)
        if layout == TOKEN_QUADS:
            start = in_page // 4 * 32 + in_page % 4
            near = Int32(4)
            far = Int32(16)
        elif layout > TOKEN_QUADS:
            start = in_page % 32 * 16 + in_page // 32 * 4
            far = Int32(512)
        at = start + place // 2 * near
        for i in cutlass.range_constexpr(2):
            amax = Float32(0.0)
            for j in cutlass.range_constexpr(RUN):
                amax = scalar.max_f32(amax, scalar.abs_f32(x[RUN * i + j]))
            amax = scalar.max_f32(amax, cute.arch.shuffle_sync_bfly(amax, offset=1))
            wanted = words.sixth(amax)
            if cutlass.const_expr(self.config.scaled):
                wanted = scalar.div_rn(scalar.div_rn(amax, Float32(6.0)), scale)
            byte = scalar.to_e4m3(scalar.min_f32(scalar.max_f32(wanted, Float32(SCALE_FLOOR)), Float32(448.0)))
            step = scalar.from_e4m3(byte)
            values = [x[RUN * i + j] for j in range(RUN)]
            if cutlass.const_expr(self.config.scaled):
                step = step * scale
                codes = words.e2m1_word(values, [scalar.abs_f32(scalar.div_rn(value, step)) for value in values])
                # A scale that is no positive number leaves nothing that could be read.
                if not (scale > Float32(0.0)) or scale == Float32(float("inf")):
                    codes = Uint32(0)
                    byte = Uint32(0x7F)
            else:
                reciprocal = words.reciprocal_of_e4m3(step)
                codes = words.e2m1_word(values, [words.divide_by_e4m3(value, step, reciprocal) for value in values])
            if writes:
                streaming.store_32(target + Int64(FAR * i // 2), codes)
                if place % 2 == 0:
                    streaming.store_8(scales + Int64(at + i * far), byte)


def trace(config: Config):
    """The launcher and what to trace it with."""
    gmem = cute.AddressSpace.gmem
    pointers = FAMILY.arguments.index("qkv_stride")
    wide = FAMILY.arguments.index("tokens") - pointers
    scalars = [Int32(0)] * (len(FAMILY.arguments) - pointers - wide)
    scalars[FAMILY.arguments.index("eps") - pointers - wide] = Float32(0.0)
    return QkNormRopeInsertSm90(config), (
        *(make_ptr(Uint8, 16, gmem, assumed_align=1) for _ in range(pointers)),
        *(Int64(0) for _ in range(wide)),
        *scalars,
        make_fake_stream(),
    )
