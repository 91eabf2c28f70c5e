"""Names of constants and words that `contract_header.py` writes into C++, by the Python modules that have them."""

CONSTANTS = {
    "speccompile": {"__version__": "kVersion"},
    "speccompile.contract": {
        "VERSION": "kContract", "PERSISTENT_PREFIX": "kPersistentPrefix", "OUT_OF_PLACE_PREFIX": "kOutOfPlacePrefix",
        "NEW_ROWS_PREFIX": "kNewRowsPrefix", "FP8_CACHE": "kFp8Cache",
        "BATCH": "kBatch", "ENDS": "kEndsState", "FLOAT_CACHE": "kFloatCache", "INT8_CACHE": "kInt8Cache",
        "INT4_VALUES": "kInt4Values", "CACHED_KINDS": "kCachedKinds", "SCALE_SUFFIX": "kScaleSuffix",
        "ADAPTER_PREFIX": "kAdapterPrefix", "ADAPTER_PARTS": "kAdapterParts",
    },
    "speccompile.bundle.manifest": {
        "FORMAT": "kFormat", "MANIFEST": "kManifest", "LOCK": "kLock", "PROOF": "kProof", "TOKENIZER": "kTokenizer",
        "CHAT": "kChat", "DEFAULT_TEMPLATE": "kDefaultTemplate", "TOOL_TEMPLATE": "kToolTemplate",
    },
    "speccompile.bundle.signatures": {
        "MOST_TOKENS": "kMostTokenIds", "TOKENS_STATE": "kTokensState", "COMPONENT_STATES": "kComponentStates",
        "ADAPTER_MATRIX": "kAdapterMatrix",
    },
    "speccompile.machine.formats.peft": {
        "ADAPTER_CONFIG": "kAdapterConfig", "ADAPTER_WEIGHTS": "kAdapterWeights", "PREFIX": "kAdapterNames",
        "LOW_RANK": "kAdapterTensors",
    }, "speccompile.bundle.acceptance": {"KEY": "kAcceptance"}, "speccompile.bundle.hashes": {"HASHES": "kHashes"},
    "speccompile.bundle.media": {
        "ENCODE_IMAGE": "kEncodeImage", "PIXELS": "kPixels", "ROWS": "kRows", "PLACES": "kPlaces", "NEAR": "kNear",
        "WINDOWS": "kWindows", "WEIGHTS": "kWeights", "AXES": "kAxes", "IMAGES_FOLDER": "kImagesFolder",
        "ROW_WEIGHTS": "kRowWeights", "COLUMN_WEIGHTS": "kColumnWeights",
    }, "speccompile.bundle.sources": {"CROSS_KINDS": "kCrossKinds", "FRAMES_PER_ROW": "kFramesPerRow"},
    "speccompile.bundle.source_section": {"SECTION": "kSourceSection", "MOST": "kMostAudioSize"},
    "speccompile.bundle.cache": {
        "FOLDER": "kCacheFolder", "LIMIT": "kCacheLimit", "DEFAULT_LIMIT": "kDefaultCacheLimit", "ENTRY": "kCacheEntry",
        "PART": "kCachePart",
    },
    "speccompile.bundle.prompts": {
        "FORMS": "kPromptForms", "QUESTION": "kQuestionForm", "MT_BENCH": "kMtBench", "PLAIN": "kPlainGroup",
        "SHOWN": "kShownOfLine",
    },
    "speccompile.index.files": {
        "FORMAT": "kIndexFormat", "HEADER": "kIndexHeader", "SEPARATOR": "kIndexSeparator",
        "TOKEN_BYTES": "kTokenBytes", "TOKENS": "kIndexTokens", "SUFFIXES": "kIndexSuffixes",
    },
    "speccompile.index.retrieval": {"POLICY": "kRetrievalPolicy"}, "speccompile.index.votes": {"ROOT": "kBehindText"},
    "speccompile.native": {
        "DOMAIN": "kKernelsDomain", "VARIABLE": "kKernelsVariable", "NONE": "kNoKernels",
        "ONNXRUNTIME": "kOnnxruntimeVariable", "THREADS_ENTRY": "kThreadsEntry",
    },
    "speccompile.runtime.images.limits": {
        "MAX_BYTES": "kMostPictureBytes", "MAX_PIXELS": "kMostPixels", "MAX_SIDE": "kLongestSide",
        "LOW_SIDE": "kLowSide", "MAX_SCANS": "kMostScans", "MAX_IMAGES": "kMostPictures",
        "ENCODER_BYTES": "kEncoderBytes",
    }, "speccompile.runtime.audio.wav": {
        "MOST_SECONDS": "kMostSeconds", "LEAST_RATE": "kLeastRate", "MOST_RATE": "kMostRate",
    }, "speccompile.runtime.audio.sound_files": {"MOST_BYTES": "kMostSoundBytes"},
    "speccompile.runtime.rounds.drafter_state": {
        "FORMAT": "kDrafterStateFormat", "METADATA": "kDrafterStateMetadata", "LONGEST": "kDrafterStateLongest",
        "LENGTH_BYTES": "kDrafterStateLengthBytes", "ALIGNMENT": "kDrafterStateAlignment",
    },
    "speccompile.runtime.session_file": {
        "FORMAT": "kSessionFormat", "HASH": "kSessionHash", "LARGEST": "kLargestDimension", "PRIVATE": "kPrivate",
    }, "speccompile.bundle.file_hashes": {"MIN_STAMP_AGE": "kMinStampAge"}, "speccompile.runtime.sessions": {
        "TOKENS": "kSessionTokens", "DRAFTER": "kSessionDrafter", "DRAFTER_LENGTH": "kSessionDrafterLength",
        "ADAPTER": "kSessionAdapter", "WRITTEN": "kSessionWritten", "FULL": "kFullCaches",
    }, "speccompile.runtime.session_key": {
        "SLIDING": "kSessionSliding", "UNREAD_KEYS": "kUnreadKeys", "NO_MODEL": "kNoModel",
    }, "speccompile.runtime.shipped_prefixes": {"PREFIXES": "kPrefixes", "SUFFIX": "kPrefixSuffix", "WORTH": "kWorth"},
    "speccompile.runtime.devices.prepacked": {
        "NAME": "kPrepackedFolder", "FORMAT": "kPrepackedFormat", "SMALLEST_GRAPH": "kSmallestPackedGraph",
        "SMALLEST_FILE": "kSmallestPackedFile", "ROOT": "kRoot", "PAGE": "kPage", "SAVED": "kSavedGraph",
    },
    "speccompile.runtime.round_times": {
        "NAME": "kTimesFolder", "FORMAT": "kTimesFormat", "PROCESSES": "kTimesProcesses", "CHANGED": "kChangedTimes",
    }, "speccompile.bundle.verified_files": {"NAME": "kVerifiedFolder"},
    "speccompile.runtime.first_times": {
        "LIMIT_SECONDS": "kTimingLimit", "MOST_RUNS": "kTimingRuns", "SMALL_SECONDS": "kSmallSeconds",
    }, "speccompile.runtime.window_invariance": {
        "NAME": "kInvarianceFolder", "FORMAT": "kInvarianceFormat", "PREFIX": "kInvariancePrefix",
        "NEUTRAL": "kNeutral",
    }, "speccompile.runtime.rounds.bound_graphs": {"MAX_BINDINGS": "kMaxBindings"},
    "speccompile.runtime.rounds.host_drafts": {"INDEX": "kIndex", "WRITER": "kWriter", "GATE": "kRetrievalGate"},
    "speccompile.runtime.options": {
        "NEW_TOKENS": "kNewTokens", "MOST_THREADS": "kMaxThreads", "MIN_TEMPERATURE": "kMinTemperature",
    }, "speccompile.runtime.rounds.adaptive_length": {
        "TRIAL_SHARE": "kTrialShare", "WON_SHARE": "kWonShare", "MOST_SHARE": "kMostShare", "FIRST_GAP": "kFirstGap",
        "FIRST_MARGIN": "kFirstMargin", "FIRST_TRIAL": "kFirstTrial", "FIRST_SHARE": "kFirstShare",
        "LONGEST_GAP": "kLongestGap", "PRIOR_ROUNDS": "kPriorRounds", "REFRESH": "kRefresh",
        "EXPECTED_NEW_TOKENS": "kExpectedNewTokens", "LOSS_PATIENCE_ROUNDS": "kLossPatienceRounds",
        "MAX_SAVED_ROUNDS": "kMaxSavedRounds", "RARE_REFRESH": "kRareRefresh", "CLEAR_SPEEDUP": "kClearSpeedup",
        "DECISION_ROUNDS": "kDecisionRounds", "LOSING_ROUNDS": "kLosingRounds",
    }, "speccompile.runtime.rounds.acceptance_rate": {
        "MEMORY": "kMemory", "LONG_MEMORY": "kLongMemory", "LARGEST_UNIT": "kLargestUnit",
        "PRIOR_WEIGHT": "kPriorWeight", "PRIOR_ACCEPTANCE": "kPriorAcceptance",
    }, "speccompile.runtime.rounds.tree_acceptance": {"LEAST_NODES": "kLeastNodes", "NODES_GAIN": "kNodesGain"},
    "speccompile.runtime.rounds.speedup_model": {
        "WARM_UP_ROUNDS": "kWarmUpRounds", "MIN_TIMED_CATCH_UP": "kMinTimedCatchUp", "WIDTH_MARGIN": "kWidthMargin",
        "NEW_WIDTH_MARGIN": "kNewWidthMargin",
    }, "speccompile.serving.scheduler.latency": {
        "ROUNDS": "kChunkRounds", "SMALLEST": "kSmallestChunk", "KEPT": "kKeptLatency",
    }, "speccompile.serving.scheduler.slot_allocator": {"SIMILAR": "kSimilarPrefix"},
    "speccompile.measure.bench.costs": {
        "WARM_UP": "kWarmUpRuns", "GENERATIONS": "kHostGenerations", "NEW_TOKENS": "kHostNewTokens",
        "EVERY_WIDTH": "kEveryWidth", "WIDE": "kWideWidths", "ON_DEVICE": "kDeviceWidths",
    }, "speccompile.measure.bench.run": {"COST_REPEATS": "kCostRepeats"}, "speccompile.measure.bench.roofline": {
        "PASSES": "kBandwidthPasses", "SMALLEST": "kSmallestBuffer", "CACHES": "kBufferCaches",
        "LARGEST": "kLargestBuffer",
    },
}  # fmt: skip
"""Module -> name in it -> name in C++. Why a value is what it is, the module says."""

WORDS = {
    "speccompile.contract": {
        "BUFFERS": "names", "GRAPHS": "graph", "ROLES": "role", "COMPONENTS": "component",
        "RECURRENT_STATE_KINDS": "recurrent_state", "DTYPES": "dtype",
    },
    "speccompile.bundle.manifest": {
        "BACKENDS": "backend", "PROVIDERS": "provider", "DECODINGS": "decoding", "TREES": "tree",
    },
    "speccompile.machine.formats.peft": {"CONFIG_KEYS": "adapter_key"},
    "speccompile.runtime.constraints.grammar": {"KINDS": "constraint_kind"},
    "speccompile.runtime.generation": {"FINISH_REASONS": "finish", "MODES": "mode"},
    "speccompile.bundle.source_section": {"FIELDS": "source_field", "AUDIO_FIELDS": "audio_field"},
}  # fmt: skip
"""Module -> a tuple of words in it -> the namespace in C++ that has a constant for each."""
