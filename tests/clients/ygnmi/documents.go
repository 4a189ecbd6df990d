package main

import (
	"net/netip"

	"github.com/openconfig/ygot/ygot"

	"holdfast/tests/clients/ygnmi/oc"
)

// document returns the configuration of a box with these interfaces.
func document(interfaces ...*oc.Interface) *oc.Root {
	root := &oc.Root{}
	for _, it := range interfaces {
		if err := root.AppendInterface(it); err != nil {
			panic(err) // a case names an interface twice
		}
	}
	return root
}

func port(name string) *oc.Interface {
	return &oc.Interface{
		Name:    &name,
		Type:    oc.IETFInterfaces_InterfaceType_ethernetCsmacd,
		Enabled: ygot.Bool(true),
	}
}

// addressed returns the interface with these addresses, such as 192.0.2.1/24, on subinterface 0.
func addressed(it *oc.Interface, prefixes ...string) *oc.Interface {
	address(it.GetOrCreateSubinterface(0), prefixes...)
	return it
}

// tagged returns the port with a VLAN as one more subinterface.
func tagged(it *oc.Interface, index uint32, id uint16, prefixes ...string) *oc.Interface {
	sub := it.GetOrCreateSubinterface(index)
	sub.GetOrCreateVlan().GetOrCreateMatch().GetOrCreateSingleTagged().VlanId = &id
	address(sub, prefixes...)
	return it
}

func address(sub *oc.Interface_Subinterface, prefixes ...string) {
	sub.Enabled = ygot.Bool(true)
	for _, text := range prefixes {
		prefix := netip.MustParsePrefix(text)
		ip, length := prefix.Addr().String(), uint8(prefix.Bits())
		if prefix.Addr().Is4() {
			sub.GetOrCreateIpv4().GetOrCreateAddress(ip).PrefixLength = &length
		} else {
			sub.GetOrCreateIpv6().GetOrCreateAddress(ip).PrefixLength = &length
		}
	}
}

func bond(name string) *oc.Interface {
	return &oc.Interface{
		Name:        &name,
		Type:        oc.IETFInterfaces_InterfaceType_ieee8023adLag,
		Enabled:     ygot.Bool(true),
		Aggregation: &oc.Interface_Aggregation{LagType: oc.Aggregation_LagType_LACP},
	}
}

func member(name, bond string) *oc.Interface {
	it := port(name)
	it.Ethernet = &oc.Interface_Ethernet{AggregateId: &bond}
	return it
}

// withLACP returns the configuration with LACP of a bond, whether the bond is there or not.
func withLACP(root *oc.Root, bond string) *oc.Root {
	entry := root.GetOrCreateLacp().GetOrCreateInterface(bond)
	entry.Interval = oc.Interface_Interval_FAST
	entry.LacpMode = oc.Interface_LacpMode_ACTIVE
	return root
}
