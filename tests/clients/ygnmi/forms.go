package main

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/openconfig/ygnmi/ygnmi"

	"holdfast/tests/clients/ygnmi/oc"
	"holdfast/tests/clients/ygnmi/oc/ocpath"
	"holdfast/tests/clients/ygnmi/oc/openconfiginterfaces"
)

// form is a way to write the change from one configuration to another as one request.
type form struct {
	name string
	fill func(batch *ygnmi.SetBatch, before, wanted *oc.Root)
}

var forms = []form{
	{"leaves", fillLeaves},
	{"items", fillItems},
	{"containers", fillContainers},
	{"the root", fillRoot},
	{"union_replace", fillUnionReplace},
}

// fillItems replaces entries of lists, and deletes those that are not wanted. An LACP entry comes before its interface, and
// members come before their bond: `eth` sorts behind `bond`, so the names are taken from the end.
func fillItems(batch *ygnmi.SetBatch, before, wanted *oc.Root) {
	lacp := ocpath.Root().Lacp()
	deleteGone(lacpOf(before), lacpOf(wanted), func(name string) {
		ygnmi.BatchDelete(batch, lacp.Interface(name).Config())
	})
	deleteGone(before.Interface, wanted.Interface, func(name string) {
		ygnmi.BatchDelete(batch, ocpath.Root().Interface(name).Config())
	})
	for _, name := range descending(lacpOf(wanted)) {
		ygnmi.BatchReplace(batch, lacp.Interface(name).Config(), wanted.Lacp.Interface[name])
	}
	for _, name := range descending(wanted.Interface) {
		ygnmi.BatchReplace(batch, ocpath.Root().Interface(name).Config(), wanted.Interface[name])
	}
}

// fillContainers replaces the containers of the lists.
func fillContainers(batch *ygnmi.SetBatch, _, wanted *oc.Root) {
	if entries := lacpOf(wanted); len(entries) > 0 {
		ygnmi.BatchReplace(batch, ocpath.Root().Lacp().InterfaceMap().Config(), entries)
	} else {
		ygnmi.BatchDelete(batch, ocpath.Root().Lacp().InterfaceMap().Config())
	}
	if len(wanted.Interface) > 0 {
		ygnmi.BatchReplace(batch, ocpath.Root().InterfaceMap().Config(), wanted.Interface)
	} else {
		ygnmi.BatchDelete(batch, ocpath.Root().InterfaceMap().Config())
	}
}

func fillRoot(batch *ygnmi.SetBatch, _, wanted *oc.Root) {
	ygnmi.BatchReplace(batch, ocpath.Root().Config(), wanted)
}

func fillUnionReplace(batch *ygnmi.SetBatch, _, wanted *oc.Root) {
	ygnmi.BatchUnionReplace(batch, ocpath.Root().Config(), wanted)
}

// fillLeaves names what differs: leaves of interfaces, addresses, subinterfaces. New interfaces and LACP entries are updates.
func fillLeaves(batch *ygnmi.SetBatch, before, wanted *oc.Root) {
	deleteGone(lacpOf(before), lacpOf(wanted), func(name string) {
		ygnmi.BatchDelete(batch, ocpath.Root().Lacp().Interface(name).Config())
	})
	for _, name := range descending(lacpOf(wanted)) {
		ygnmi.BatchUpdate(batch, ocpath.Root().Lacp().Interface(name).Config(), wanted.Lacp.Interface[name])
	}
	deleteGone(before.Interface, wanted.Interface, func(name string) {
		ygnmi.BatchDelete(batch, ocpath.Root().Interface(name).Config())
	})
	for _, name := range descending(wanted.Interface) {
		path, now := ocpath.Root().Interface(name), wanted.Interface[name]
		if was := before.Interface[name]; was != nil {
			fillInterface(batch, path, was, now)
		} else {
			ygnmi.BatchUpdate(batch, path.Config(), now)
		}
	}
}

func fillInterface(batch *ygnmi.SetBatch, path *openconfiginterfaces.InterfacePath, was, now *oc.Interface) {
	fillLeaf(batch, path.Description().Config(), was.Description, now.Description)
	fillLeaf(batch, path.Enabled().Config(), was.Enabled, now.Enabled)
	fillLeaf(batch, path.Mtu().Config(), was.Mtu, now.Mtu)
	fillLeaf(batch, path.Ethernet().AggregateId().Config(), aggregateOf(was), aggregateOf(now))
	deleteGone(was.Subinterface, now.Subinterface, func(index uint32) {
		ygnmi.BatchDelete(batch, path.Subinterface(index).Config())
	})
	for _, index := range ascending(now.Subinterface) {
		sub := now.Subinterface[index]
		if old := was.Subinterface[index]; old != nil {
			fillSubinterface(batch, path.Subinterface(index), old, sub)
		} else {
			ygnmi.BatchUpdate(batch, path.Subinterface(index).Config(), sub)
		}
	}
}

func fillSubinterface(
	batch *ygnmi.SetBatch, path *openconfiginterfaces.Interface_SubinterfacePath, was, now *oc.Interface_Subinterface,
) {
	fillLeaf(batch, path.Vlan().Match().SingleTagged().VlanId().Config(), vlanOf(was), vlanOf(now))
	deleteGone(ipv4Of(was), ipv4Of(now), func(ip string) {
		ygnmi.BatchDelete(batch, path.Ipv4().Address(ip).Config())
	})
	for _, ip := range ascending(ipv4Of(now)) {
		ygnmi.BatchReplace(batch, path.Ipv4().Address(ip).Config(), now.Ipv4.Address[ip])
	}
	deleteGone(ipv6Of(was), ipv6Of(now), func(ip string) {
		ygnmi.BatchDelete(batch, path.Ipv6().Address(ip).Config())
	})
	for _, ip := range ascending(ipv6Of(now)) {
		ygnmi.BatchReplace(batch, path.Ipv6().Address(ip).Config(), now.Ipv6.Address[ip])
	}
}

// fillLeaf updates a leaf with another value, and deletes one that is not wanted.
func fillLeaf[T any](batch *ygnmi.SetBatch, leaf ygnmi.ConfigQuery[T], was, now *T) {
	switch {
	case reflect.DeepEqual(was, now):
	case now == nil:
		ygnmi.BatchDelete(batch, leaf)
	default:
		ygnmi.BatchUpdate(batch, leaf, *now)
	}
}

func deleteGone[K cmp.Ordered, V any](before, wanted map[K]V, remove func(K)) {
	for _, key := range ascending(before) {
		if _, stays := wanted[key]; !stays {
			remove(key)
		}
	}
}

func ascending[K cmp.Ordered, V any](entries map[K]V) []K {
	return slices.Sorted(maps.Keys(entries))
}

func descending[V any](entries map[string]V) []string {
	names := ascending(entries)
	slices.Reverse(names)
	return names
}

func lacpOf(root *oc.Root) map[string]*oc.Lacp_Interface {
	if root.GetLacp() == nil {
		return nil
	}
	return root.Lacp.Interface
}

func aggregateOf(it *oc.Interface) *string {
	if it.GetEthernet() == nil {
		return nil
	}
	return it.Ethernet.AggregateId
}

func vlanOf(it *oc.Interface_Subinterface) *uint16 {
	if it.GetVlan().GetMatch().GetSingleTagged() == nil {
		return nil
	}
	return it.Vlan.Match.SingleTagged.VlanId
}

func ipv4Of(it *oc.Interface_Subinterface) map[string]*oc.Interface_Subinterface_Ipv4_Address {
	if it.GetIpv4() == nil {
		return nil
	}
	return it.Ipv4.Address
}

func ipv6Of(it *oc.Interface_Subinterface) map[string]*oc.Interface_Subinterface_Ipv6_Address {
	if it.GetIpv6() == nil {
		return nil
	}
	return it.Ipv6.Address
}
