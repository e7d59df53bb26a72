package limits

import "slices"

// turns is a queue of what waits at addresses for users. Addresses take turns, and so do the users of an
// address: what waits for one does not delay what waits for others. Its users lock it.
type turns[T comparable] struct {
	order []string            // addresses at which something waits, the next one first
	at    map[string]*line[T] // by address
	n     int                 // of all
}

// line is what waits at one address.
type line[T comparable] struct {
	order   []string       // users for which something waits, the next one first
	waiting map[string][]T // by user, oldest first
	n       int
}

func newTurns[T comparable]() turns[T] { return turns[T]{at: map[string]*line[T]{}} }

// add appends item to those that wait for user at address, and returns how many wait at address.
func (t *turns[T]) add(address, user string, item T) int {
	at := t.at[address]
	if at == nil {
		at = &line[T]{waiting: map[string][]T{}}
		t.at[address], t.order = at, append(t.order, address)
	}
	if len(at.waiting[user]) == 0 {
		at.order = append(at.order, user)
	}
	at.waiting[user] = append(at.waiting[user], item)
	at.n++
	t.n++
	return at.n
}

// next removes and returns the oldest item of the user whose turn it is at the address whose turn it is.
// Both are last in order then, if more waits for them. Something must wait.
func (t *turns[T]) next() T {
	address := t.order[0]
	at := t.at[address]
	user := at.order[0]
	item := at.waiting[user][0]
	t.order = append(t.order[1:], address)
	at.order = append(at.order[1:], user)
	t.leave(address, user, item)
	return item
}

// leave removes item, and reports whether it waited.
func (t *turns[T]) leave(address, user string, item T) bool {
	at := t.at[address]
	if at == nil {
		return false
	}
	i := slices.Index(at.waiting[user], item)
	if i < 0 {
		return false
	}
	if at.waiting[user] = slices.Delete(at.waiting[user], i, i+1); len(at.waiting[user]) == 0 {
		delete(at.waiting, user)
		at.order = slices.DeleteFunc(at.order, func(u string) bool { return u == user })
	}
	t.n--
	if at.n--; at.n == 0 {
		delete(t.at, address)
		t.order = slices.DeleteFunc(t.order, func(a string) bool { return a == address })
	}
	return true
}

// dropOldest removes and returns the oldest item of the user for which the most waits at address.
// Something must wait there. It visits the users of the address.
func (t *turns[T]) dropOldest(address string) T {
	at := t.at[address]
	user := slices.MaxFunc(at.order, func(a, b string) int { return len(at.waiting[a]) - len(at.waiting[b]) })
	item := at.waiting[user][0]
	t.leave(address, user, item)
	return item
}
