/*
 * Runs ARX on a table of codes and their hierarchies, so that its searches can be measured beside ours.
 *
 *   java -cp libarx.jar bench/ArxDriver.java FOLDER K SUPPRESS ALGORITHM MILLISECONDS TIMES MEASURE [MODEL COLUMN VALUES]
 *
 * FOLDER holds table.csv and, for each quasi-identifier, NAME.hierarchy.csv, all separated by `;`; a sensitive column
 * has one only for distances along it. For each run one line of JSON: the levels, their loss, the rows suppressed, CPU
 * and wall seconds of the search.
 */

import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.StringJoiner;
import org.deidentifier.arx.ARXAnonymizer;
import org.deidentifier.arx.ARXConfiguration;
import org.deidentifier.arx.ARXConfiguration.AnonymizationAlgorithm;
import org.deidentifier.arx.ARXLattice.ARXNode;
import org.deidentifier.arx.ARXResult;
import org.deidentifier.arx.AttributeType;
import org.deidentifier.arx.AttributeType.Hierarchy;
import org.deidentifier.arx.Data;
import org.deidentifier.arx.DataHandle;
import org.deidentifier.arx.criteria.DistinctLDiversity;
import org.deidentifier.arx.criteria.EntropyLDiversity;
import org.deidentifier.arx.criteria.EqualDistanceTCloseness;
import org.deidentifier.arx.criteria.HierarchicalDistanceTCloseness;
import org.deidentifier.arx.criteria.KAnonymity;
import org.deidentifier.arx.criteria.PrivacyCriterion;
import org.deidentifier.arx.criteria.RecursiveCLDiversity;
import org.deidentifier.arx.metric.Metric;
import org.deidentifier.arx.metric.Metric.AggregateFunction;

public final class ArxDriver {

    private static final OperatingSystemMXBean PROCESS =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    public static void main(String[] arguments) throws Exception {
        File folder = new File(arguments[0]);
        String sensitive = arguments.length > 7 ? arguments[8] : null;
        Data data = Data.create(new File(folder, "table.csv"), StandardCharsets.UTF_8, ';');
        for (int column = 0; column < data.getHandle().getNumColumns(); column++) {
            define(data, folder, data.getHandle().getAttributeName(column), sensitive);
        }
        for (int run = 0; run < Integer.parseInt(arguments[5]); run++) {
            search(data, configuration(folder, arguments));
            data.getHandle().release();
        }
    }

    private static void define(Data data, File folder, String name, String sensitive) throws Exception {
        if (name.equals(sensitive)) {
            data.getDefinition().setAttributeType(name, AttributeType.SENSITIVE_ATTRIBUTE);
            return;
        }
        data.getDefinition().setAttributeType(name, tree(folder, name));
    }

    private static Hierarchy tree(File folder, String name) throws Exception {
        return Hierarchy.create(new File(folder, name + ".hierarchy.csv"), StandardCharsets.UTF_8, ';');
    }

    private static ARXConfiguration configuration(File folder, String[] arguments) throws Exception {
        ARXConfiguration asked = ARXConfiguration.create();
        asked.addPrivacyModel(new KAnonymity(Integer.parseInt(arguments[1])));
        if (arguments.length > 7) {
            asked.addPrivacyModel(model(folder, arguments[7], arguments[8], arguments));
        }
        asked.setSuppressionLimit(Double.parseDouble(arguments[2]));
        asked.setQualityModel(measure(arguments[6]));
        asked.setAlgorithm(AnonymizationAlgorithm.valueOf(arguments[3]));
        asked.setHeuristicSearchTimeLimit(Integer.parseInt(arguments[4]));
        asked.setHeuristicSearchThreshold(Integer.MAX_VALUE);
        return asked;
    }

    private static PrivacyCriterion model(File folder, String kind, String column, String[] arguments) throws Exception {
        double value = Double.parseDouble(arguments[9]);
        switch (kind) {
            case "distinct": return new DistinctLDiversity(column, (int) value);
            case "entropy": return new EntropyLDiversity(column, value);
            case "recursive": return new RecursiveCLDiversity(column, value, Integer.parseInt(arguments[10]));
            case "equal": return new EqualDistanceTCloseness(column, value);
            case "hierarchical": return new HierarchicalDistanceTCloseness(column, value, tree(folder, column));
            default: throw new IllegalArgumentException("there is no model " + kind);
        }
    }

    private static Metric<?> measure(String name) {
        switch (name) {
            case "loss": return Metric.createLossMetric(AggregateFunction.ARITHMETIC_MEAN);
            case "geometric-loss": return Metric.createLossMetric(AggregateFunction.GEOMETRIC_MEAN);
            case "discernibility": return Metric.createDiscernabilityMetric(false);
            default: throw new IllegalArgumentException("there is no measure " + name);
        }
    }

    private static void search(Data data, ARXConfiguration asked) throws Exception {
        long cpu = PROCESS.getProcessCpuTime();
        long wall = System.nanoTime();
        ARXResult result = new ARXAnonymizer().anonymize(data, asked);
        double spent = (PROCESS.getProcessCpuTime() - cpu) / 1e9;
        double passed = (System.nanoTime() - wall) / 1e9;
        ARXNode best = result.getGlobalOptimum();
        if (best == null) {
            System.out.printf("{\"levels\": null, \"cpu\": %.3f, \"wall\": %.3f}%n", spent, passed);
            return;
        }
        StringJoiner levels = new StringJoiner(", ", "{", "}");
        for (String name : best.getQuasiIdentifyingAttributes()) {
            levels.add("\"" + name + "\": " + best.getGeneralization(name));
        }
        System.out.printf("{\"levels\": %s, \"loss\": %s, \"suppressed\": %d, \"cpu\": %.3f, \"wall\": %.3f}%n",
                          levels, best.getHighestScore(), suppressed(result.getOutput(best, false)), spent, passed);
    }

    private static int suppressed(DataHandle released) {
        int count = 0;
        for (int row = 0; row < released.getNumRows(); row++) {
            count += released.isOutlier(row) ? 1 : 0;
        }
        return count;
    }
}
