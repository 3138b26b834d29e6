package page

// Embedded and HandlerOf let tests serve the page as another checkout has it.
var (
	Embedded  = embedded
	HandlerOf = handler
)
