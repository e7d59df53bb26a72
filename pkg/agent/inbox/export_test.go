package inbox

import "github.com/workwire/workwire/pkg/wire"

// ByName returns the work of source that has the name, and whether there is one.
func (b *Inbox) ByName(source wire.SourceID, name string) (*Entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	uid, ok := b.works[source].byName[name]
	return b.find(Key{source, uid}).snapshot(), ok
}

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
