package limits

import "slices"

// turns is a queue of what waits at addresses, which take turns: what waits at one address does not delay
// what waits at others. Its users lock it.
type turns[T comparable] struct {
	order   []string       // addresses at which something waits, the next one first
	waiting map[string][]T // by address, oldest first
}

func newTurns[T comparable]() turns[T] { return turns[T]{waiting: map[string][]T{}} }

// add appends item to those that wait at address.
func (t *turns[T]) add(address string, item T) {
	if len(t.waiting[address]) == 0 {
		t.order = append(t.order, address)
	}
	t.waiting[address] = append(t.waiting[address], item)
}

// next removes and returns the oldest item of the address at index i of order, which is last in order
// then if more waits there.
func (t *turns[T]) next(i int) T {
	address := t.order[i]
	item := t.waiting[address][0]
	t.order = slices.Delete(t.order, i, i+1)
	if t.waiting[address] = t.waiting[address][1:]; len(t.waiting[address]) > 0 {
		t.order = append(t.order, address)
	} else {
		delete(t.waiting, address)
	}
	return item
}

// leave removes item, and reports whether it waited.
func (t *turns[T]) leave(address string, item T) bool {
	i := slices.Index(t.waiting[address], item)
	if i < 0 {
		return false
	}
	if t.waiting[address] = slices.Delete(t.waiting[address], i, i+1); len(t.waiting[address]) == 0 {
		delete(t.waiting, address)
		t.order = slices.DeleteFunc(t.order, func(a string) bool { return a == address })
	}
	return true
}

// len returns how many items wait.
func (t *turns[T]) len() (n int) {
	for _, items := range t.waiting {
		n += len(items)
	}
	return n
}
