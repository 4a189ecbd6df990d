package main

import (
	"fmt"
	"slices"

	"github.com/openconfig/ygnmi/ygnmi"
	"github.com/openconfig/ygot/ygot"

	"holdfast/tests/clients/ygnmi/oc"
	"holdfast/tests/clients/ygnmi/oc/ocpath"
)

// step is a configuration of a case, and what it does to the one before.
type step struct {
	name   string
	wanted *oc.Root
}

func (b *box) setAll(steps ...step) error {
	for _, step := range steps {
		if err := b.set(step.name, step.wanted); err != nil {
			return err
		}
	}
	return nil
}

// described returns the port with these attributes. The MTU counts the header of Ethernet.
func described(it *oc.Interface, description string, mtu uint16) *oc.Interface {
	it.Description, it.Mtu = &description, &mtu
	return it
}

// attributes sets, swaps and removes what an interface has of its own. It leaves eth0 with the MTU 1414, and eth1 shut.
func attributes(b *box) error {
	shut := port("eth1")
	shut.Enabled = ygot.Bool(false)
	if err := b.setAll(
		step{"two ports", document(described(port("eth0"), "first", 1414), described(port("eth1"), "second", 1314))},
		step{"a swap", document(described(port("eth0"), "second", 1314), described(port("eth1"), "first", 1414))},
		step{"fewer leaves", document(port("eth0"), shut)},
		step{"another port", document(port("eth2"))},
		step{"leaves again", document(described(port("eth0"), "first", 1414), shut)},
	); err != nil {
		return err
	}
	// Single leaves, as a test of ondatra waits for them.
	eth0 := ocpath.Root().Interface("eth0")
	if _, err := ygnmi.Update(b.ctx, b.client, eth0.Description().Config(), "third"); err != nil {
		return err
	}
	got, err := ygnmi.Get(b.ctx, b.client, eth0.Description().Config())
	if err != nil || got != "third" {
		return fmt.Errorf("the configured description is %q, not \"third\": %v", got, err)
	}
	if _, err := ygnmi.Await(b.ctx, b.client, eth0.Description().State(), "third"); err != nil {
		return fmt.Errorf("the description in state: %w", err)
	}
	return nil
}

// addresses moves and swaps addresses between ports. It leaves the pair of eth0 on eth1, and that of eth1 on eth0.
func addresses(b *box) error {
	first := []string{"192.0.2.1/24", "2001:db8:1::1/64"}
	second := []string{"198.51.100.1/24", "2001:db8:2::1/64"}
	both := slices.Concat(first, second)
	eth0 := func(prefixes ...string) *oc.Interface { return addressed(port("eth0"), prefixes...) }
	eth1 := func(prefixes ...string) *oc.Interface { return addressed(port("eth1"), prefixes...) }
	return b.setAll(
		step{"two ports", document(eth0(first...), eth1(second...))},
		step{"a move from eth0 to eth1", document(eth0(), eth1(both...))},
		step{"a move of all from eth1 to eth0", document(eth0(both...), eth1())},
		step{"a move to a port without configuration", document(eth0(second...), addressed(port("eth2"), first...))},
		step{"a move from a port that is deleted", document(eth0(first...), eth1(second...))},
		step{"other prefix lengths", document(eth0("192.0.2.1/25", "2001:db8:1::1/96"), eth1(second...))},
		step{"the same prefix lengths again", document(eth0(first...), eth1(second...))},
		step{"a swap", document(eth0(second...), eth1(first...))},
	)
}

// vlans moves and swaps VLANs and their addresses. It leaves VLAN 20 on subinterface 10 of eth0, and VLAN 10 on subinterface 20.
func vlans(b *box) error {
	eth0 := func(ten, twenty uint16, onTen, onTwenty string) *oc.Root {
		return document(tagged(tagged(port("eth0"), 10, ten, onTen), 20, twenty, onTwenty))
	}
	const first, second = "192.0.2.1/24", "198.51.100.1/24"
	return b.setAll(
		step{"two VLANs", eth0(10, 20, first, second)},
		step{"a swap of addresses", eth0(10, 20, second, first)},
		step{"a move of a VLAN to another port",
			document(tagged(port("eth0"), 20, 20, first), tagged(port("eth1"), 10, 10, second))},
		step{"a move of an address to the port",
			document(addressed(tagged(port("eth0"), 20, 20), first), tagged(port("eth1"), 10, 10, second))},
		step{"back", eth0(10, 20, first, second)},
		step{"a swap of tags", eth0(20, 10, first, second)},
	)
}

// bonds sets LACP before the bond, and moves and swaps members. It leaves eth0 and eth2 in bond1, and eth1 in bond0.
func bonds(b *box) error {
	const bond0, bond1 = "192.0.2.1/24", "198.51.100.1/24"
	two := func(eth0, eth1, eth2 string) *oc.Root {
		return withLACP(withLACP(document(addressed(bond("bond0"), bond0), addressed(bond("bond1"), bond1),
			member("eth0", eth0), member("eth1", eth1), member("eth2", eth2)), "bond0"), "bond1")
	}
	one := func() *oc.Root {
		return withLACP(document(addressed(bond("bond0"), bond0), member("eth0", "bond0"), member("eth1", "bond0")), "bond0")
	}
	return b.setAll(
		step{"LACP before its bond", withLACP(document(), "bond0")},
		step{"the bond and its members", one()},
		step{"nothing", document()},
		step{"LACP, the bond and its members", one()},
		step{"one more bond", two("bond0", "bond0", "bond1")},
		step{"a move of a member", two("bond0", "bond1", "bond1")},
		step{"a swap of members", two("bond1", "bond0", "bond0")},
		step{"a move to a bond that is new", one()},
		step{"two bonds again", two("bond1", "bond0", "bond1")},
	)
}

// deletes removes what is there and what is not, and brings back what was before. It leaves nothing.
func deletes(b *box) error {
	root := ocpath.Root()
	eth0 := root.Interface("eth0")
	ipv4 := eth0.Subinterface(0).Ipv4()
	nothing := root.Interface("absent0")
	// Each form deletes what it names: leaves, entries of lists, or containers.
	absent := []struct {
		form, name string
		add        func(*ygnmi.SetBatch)
	}{
		{"leaves", "a leaf", func(it *ygnmi.SetBatch) { ygnmi.BatchDelete(it, eth0.Mtu().Config()) }},
		{"leaves", "a leaf of nothing", func(it *ygnmi.SetBatch) { ygnmi.BatchDelete(it, nothing.Mtu().Config()) }},
		{"leaves", "a membership", func(it *ygnmi.SetBatch) { ygnmi.BatchDelete(it, eth0.Ethernet().AggregateId().Config()) }},
		{"items", "a port", func(it *ygnmi.SetBatch) { ygnmi.BatchDelete(it, root.Interface("eth3").Config()) }},
		{"items", "an interface", func(it *ygnmi.SetBatch) { ygnmi.BatchDelete(it, nothing.Config()) }},
		{"items", "an address", func(it *ygnmi.SetBatch) { ygnmi.BatchDelete(it, ipv4.Address("203.0.113.9").Config()) }},
		{"items", "a subinterface", func(it *ygnmi.SetBatch) { ygnmi.BatchDelete(it, eth0.Subinterface(7).Config()) }},
		{"items", "an LACP entry", func(it *ygnmi.SetBatch) { ygnmi.BatchDelete(it, root.Lacp().Interface("absent0").Config()) }},
		{"containers", "neighbours", func(it *ygnmi.SetBatch) { ygnmi.BatchDelete(it, ipv4.NeighborMap().Config()) }},
		{"containers", "LACP entries", func(it *ygnmi.SetBatch) { ygnmi.BatchDelete(it, root.Lacp().InterfaceMap().Config()) }},
		{"containers", "LACP", func(it *ygnmi.SetBatch) { ygnmi.BatchDelete(it, root.Lacp().Config()) }},
	}
	full := func() *oc.Root {
		first := addressed(port("eth0"), "192.0.2.1/24", "2001:db8:1::1/64")
		first.Description = ygot.String("first")
		return document(first, addressed(port("eth1"), "198.51.100.1/24"))
	}
	if err := b.set("two ports", full()); err != nil {
		return err
	}
	everything := &ygnmi.SetBatch{}
	for _, it := range absent {
		it.add(everything)
		if it.form != b.form.name {
			continue
		}
		// Twice in one request, and the request twice.
		batch := &ygnmi.SetBatch{}
		it.add(batch)
		it.add(batch)
		for _, again := range []string{"", " again"} {
			if err := b.request("a delete of "+it.name+", which is absent"+again, batch, full()); err != nil {
				return err
			}
		}
	}
	if err := b.request("deletes of all that is absent", everything, full()); err != nil {
		return err
	}
	// The whole configuration as a controller reads it, with the keys of what exists in state alone.
	read, err := b.readConfig()
	if err != nil {
		return err
	}
	for _, again := range []string{"", " again"} {
		gone := &ygnmi.SetBatch{}
		ygnmi.BatchDelete(gone, root.InterfaceMap().Config())
		if err := b.request("a delete of the container"+again, gone, document()); err != nil {
			return err
		}
		if err := b.request("a second delete of the container"+again, gone, document()); err != nil {
			return err
		}
		back := &ygnmi.SetBatch{}
		b.form.fill(back, document(), read)
		if err := b.request("what was before"+again, back, full()); err != nil {
			return err
		}
	}
	// Deletes come first in a request, wherever they stand in it.
	replaced := &ygnmi.SetBatch{}
	ygnmi.BatchReplace(replaced, eth0.Config(), full().Interface["eth0"])
	ygnmi.BatchDelete(replaced, eth0.Config())
	if err := b.request("a replace and a delete of one entry", replaced, full()); err != nil {
		return err
	}
	return b.set("nothing", document())
}
