package delivery

// fifo is a queue whose zero value is empty. Push and pop cost O(1) amortised.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) push(item T) { q.items = append(q.items, item) }

func (q *fifo[T]) pop() (T, bool) {
	var none T
	if q.len() == 0 {
		return none, false
	}
	item := q.items[q.head]
	q.items[q.head] = none
	q.head++
	if q.head*2 >= len(q.items) {
		q.items = append(q.items[:0], q.items[q.head:]...)
		q.head = 0
	}
	return item, true
}
