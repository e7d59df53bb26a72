package inbox

// Keys returns the keys of all works.
func (b *Inbox) Keys() []Key {
	b.mu.Lock()
	defer b.mu.Unlock()
	var keys []Key
	for _, s := range b.works {
		for _, w := range s.byUID {
			keys = append(keys, w.entry.Key)
		}
	}
	return keys
}
