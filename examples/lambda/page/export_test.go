package page

// Embedded and HandlerOf let tests serve the page with other line endings.
var (
	Embedded  = embedded
	HandlerOf = handler
)
