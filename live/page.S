// The bundled, compressed page.
    .section .rodata
    .global allod_live_page
    .hidden allod_live_page
    .global allod_live_page_end
    .hidden allod_live_page_end
allod_live_page:
    .incbin ALLOD_LIVE_PAGE
allod_live_page_end:
    .section .note.GNU-stack, "", %progbits
