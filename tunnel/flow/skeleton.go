package flow

// Budget is a process-wide byte budget.
type Budget struct{}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { panic("skeleton") }
