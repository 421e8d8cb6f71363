// The bundled, compressed page, and the list of functions that only pass allocations on.
    .section .rodata
    .global allod_live_page
    .hidden allod_live_page
    .global allod_live_page_end
    .hidden allod_live_page_end
allod_live_page:
    .incbin ALLOD_LIVE_PAGE
allod_live_page_end:
    .global allod_live_wrappers
    .hidden allod_live_wrappers
    .global allod_live_wrappers_end
    .hidden allod_live_wrappers_end
allod_live_wrappers:
    .incbin ALLOD_LIVE_WRAPPERS
allod_live_wrappers_end:
    .section .note.GNU-stack, "", %progbits
